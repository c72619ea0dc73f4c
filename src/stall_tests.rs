//! Who has stalled and who is slow, on a paused clock.

use super::*;
use std::sync::atomic::{AtomicU32, Ordering};

#[tokio::test(start_paused = true)]
async fn only_a_reader_that_takes_nothing_has_stalled() {
    let watch = Arc::new(StallWatch::default());
    let task = tokio::spawn(Arc::clone(&watch).run());
    let stalls = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&stalls);
    let body = watch.watch(Duration::from_secs(1), move || {
        count.fetch_add(1, Ordering::SeqCst);
    });
    body.asked();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(stalls.load(Ordering::SeqCst), 0, "the backend takes its time");
    body.given();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(stalls.load(Ordering::SeqCst), 1, "once a stall");
    body.given();
    drop(body);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(stalls.load(Ordering::SeqCst), 1);
    task.abort();
}

struct Readers {
    watch: Arc<StallWatch>,
    ended: Arc<Mutex<Vec<&'static str>>>,
}

impl Readers {
    fn add(&self, name: &'static str, holds: Holds) -> Watch {
        let ended = Arc::clone(&self.ended);
        self.watch.reader(Duration::from_secs(600), holds, move |end| {
            assert_eq!(end, End::MakesRoom);
            ended.lock().expect("no panic").push(name);
        })
    }

    async fn room(&self, wanted: Wanted) -> Option<&'static str> {
        let before = self.ended.lock().expect("no panic").len();
        let made = self.watch.make_room(wanted).await;
        let ended = self.ended.lock().expect("no panic");
        assert_eq!(ended.len() - before, usize::from(made), "one at a time");
        ended.get(before).copied()
    }
}

#[tokio::test(start_paused = true)]
async fn the_reader_that_stalled_longest_makes_room_and_only_for_what_it_holds() {
    let readers = Readers { watch: Arc::default(), ended: Arc::default() };
    let batch = BreakOff::default();
    batch.held.bytes.store(5, Ordering::Relaxed);
    let mut watches = Vec::new();
    for (name, holds) in [("a", Holds::Slot), ("b", Holds::Batch(batch.clone())), ("c", Holds::Slot), ("d", Holds::Slot)] {
        watches.push(readers.add(name, holds));
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    assert_eq!(readers.room(Wanted::Slot).await, None, "nobody has stalled for long");
    tokio::time::advance(STALL_GRACE - Duration::from_secs(2)).await;
    assert_eq!(readers.room(Wanted::Bytes(6)).await, None, "that is more than all of them have");
    assert_eq!(readers.room(Wanted::Entries(1)).await, None, "nobody has any");
    assert_eq!(readers.room(Wanted::Bytes(5)).await, Some("b"), "a plain answer has nothing that a batch wants");
    assert!(batch.told.is_cancelled());
    watches[2].asked();
    watches[2].given();
    drop(watches.remove(3));
    assert_eq!(readers.room(Wanted::Slot).await, Some("a"));
    tokio::time::advance(TICK).await;
    assert_eq!(readers.room(Wanted::Slot).await, None, "c has read and d has gone");
    tokio::time::advance(STALL_GRACE + TICK).await;
    assert_eq!(readers.room(Wanted::Slot).await, Some("c"));
    assert_eq!(readers.room(Wanted::Slot).await, None, "each is found once");
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_does_not_let_go_is_not_waited_for() {
    let readers = Readers { watch: Arc::default(), ended: Arc::default() };
    let batch = BreakOff::default();
    batch.held.entries.store(1, Ordering::Relaxed);
    let _watch = readers.add("b", Holds::Batch(batch));
    tokio::time::advance(STALL_GRACE + TICK).await;
    let started = Instant::now();
    assert_eq!(readers.room(Wanted::Entries(1)).await, Some("b"));
    assert!(started.elapsed() < 2 * BREAK_OFF_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn for_a_slot_the_slowest_makes_room_after_those_that_stalled_and_a_fast_one_never() {
    let readers = Readers { watch: Arc::default(), ended: Arc::default() };
    let paces = [("fast", 30_000), ("slow", 2000), ("slower", 1000), ("stalls", 0), ("waits for us", 10)];
    let watches: Vec<_> = paces.iter().map(|(name, _)| readers.add(name, Holds::Slot)).collect();
    for second in 0..=60 {
        for ((name, pace), watch) in paces.iter().zip(&watches) {
            match *name {
                "stalls" if second > 20 => {}
                "waits for us" => watch.asked(),
                _ => {
                    watch.asked();
                    watch.given();
                    watch.moved(*pace);
                }
            }
        }
        assert_eq!(readers.room(Wanted::Slot).await.filter(|_| second < 50), None);
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    assert_eq!(readers.room(Wanted::Slot).await, Some("slow"));
    let ended = readers.ended.lock().expect("no panic").clone();
    assert_eq!(ended, ["stalls", "slower", "slow"]);
    assert_eq!(readers.room(Wanted::Bytes(1)).await, None);
}
