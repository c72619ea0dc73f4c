//! Where an endpoint's name leads and which of its addresses comes first. In comes a name, out goes an order of addresses; what
//! comes back is how each of them fared. Nothing here opens a connection.
//!
//! Invariants: a name is resolved anew for each connection, so one that changes is followed; several addresses take turns; one
//! that failed is tried last until it answers again or [`MEMORY`] has passed, and never left out.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// How long a failure counts against an address that has not answered since.
const MEMORY: Duration = Duration::from_secs(10);

/// How long an address may take to connect before the next one is tried beside it (RFC 8305, section 8). One that has taken longer
/// when it is given up has failed; whoever goes away earlier says nothing about it.
pub(super) const PATIENCE: Duration = Duration::from_millis(250);

/// An address that has not been reached for this long has no kept connections any more: those that idle are closed before.
const KEPT_MAX: Duration = Duration::from_secs(30);

/// Most addresses of a name that are tried for one connection.
const TRIED_MAX: usize = 8;

/// Share of `attempt_timeout` after which an attempt was given up for its silence: its own clock began a little earlier.
const SILENCE_SHARE: f64 = 0.9;

/// Most addresses whose failures are remembered; names whose addresses keep changing must not fill the memory.
const REMEMBERED_MAX: usize = 256;

/// How a name is resolved: host and port to addresses.
pub type Resolve = Arc<dyn Fn(String, u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync>;

/// Lookups that may be under way at once. Each takes a thread, for as long as the system's resolver does: one that hangs must not
/// make a thread of each connection that is wanted.
const LOOKUPS_MAX: usize = 8;

/// Resolves as the system does; a host that is an address is one, and takes no thread.
pub fn system() -> Resolve {
    let lookups = Arc::new(Semaphore::new(LOOKUPS_MAX));
    Arc::new(move |host, port| {
        let lookups = Arc::clone(&lookups);
        Box::pin(async move {
            if let Ok(address) = host.trim_matches(['[', ']']).parse() {
                return Ok(vec![SocketAddr::new(address, port)]);
            }
            let lookup = lookups.acquire_owned().await.expect("it is never closed");
            let found = tokio::task::spawn_blocking(move || {
                // Held by the thread, which outlives whoever gives up waiting for it.
                let _lookup = lookup;
                (host.as_str(), port).to_socket_addrs().map(Iterator::collect)
            });
            found.await.map_err(io::Error::other)?
        })
    })
}

/// Which of the addresses that have failed lately go last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// Those that have not answered since.
    AnyWell,
    /// All of them: something has just failed, and another address is wanted.
    Elsewhere,
}

/// The addresses of an endpoint's names.
pub struct Addresses {
    resolve: Resolve,
    /// Moves on with each connection, so that addresses take turns.
    turn: AtomicUsize,
    /// Whether any failure is remembered: what is well costs no lock.
    troubled: AtomicBool,
    /// See [`Addresses::silence`].
    silence: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    troubles: HashMap<SocketAddr, Trouble>,
    /// The addresses to which there have been connections, and since when there can be no new one.
    met: HashMap<SocketAddr, Option<Instant>>,
}

impl State {
    /// Whether connections to an address that cannot be reached may be among those that are kept.
    fn may_be_kept(&mut self, address: SocketAddr, now: Instant) -> bool {
        let Some(unreached_since) = self.met.get_mut(&address) else { return self.met.len() >= REMEMBERED_MAX };
        let kept = now - *unreached_since.get_or_insert(now) < KEPT_MAX;
        if !kept {
            self.met.remove(&address);
        }
        kept
    }
}

/// The last failure of an address.
#[derive(Clone, Copy, Debug)]
struct Trouble {
    at: Instant,
    /// It has answered since.
    answered: bool,
    /// Connections to it may be kept, which share its fate.
    kept: bool,
}

impl Trouble {
    fn counts(&self, choice: Choice, now: Instant) -> bool {
        now - self.at < MEMORY && (choice == Choice::Elsewhere || !self.answered)
    }
}

/// The far end of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    /// Its address.
    pub(super) address: SocketAddr,
    /// Since when there has been the connection.
    pub(super) since: Instant,
}

impl Addresses {
    /// Addresses that `resolve` finds. Their callers wait `attempt_timeout` for an answer.
    pub fn new(resolve: Resolve, attempt_timeout: Duration) -> Arc<Self> {
        Arc::new(Self {
            resolve,
            turn: AtomicUsize::new(0),
            troubled: AtomicBool::new(false),
            silence: attempt_timeout.mul_f64(SILENCE_SHARE),
            state: Mutex::default(),
        })
    }

    /// The addresses of a name, the one to try first in front.
    ///
    /// # Errors
    /// The resolver's own, or that there is none.
    pub(super) async fn of(&self, host: &str, port: u16, choice: Choice) -> io::Result<Vec<SocketAddr>> {
        let found = (self.resolve)(host.to_owned(), port).await?;
        if found.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        Ok(order(found, turn, choice, &self.lock().troubles, Instant::now()))
    }

    /// What gets no answer for this long and is then given up was given up for that, and is a failure of the address; whoever
    /// leaves earlier has other reasons.
    pub(super) fn silence(&self) -> Duration {
        self.silence
    }

    /// There is a new connection to the address.
    pub(super) fn connected(&self, address: SocketAddr) {
        let met = &mut self.lock().met;
        if met.len() < REMEMBERED_MAX || met.contains_key(&address) {
            met.insert(address, None);
        }
    }

    /// The address could not be reached.
    pub(super) fn unreached(&self, address: SocketAddr) {
        let kept = self.lock().may_be_kept(address, Instant::now());
        self.note(address, false, kept);
    }

    /// The address gave no answer on a connection that there was.
    pub(super) fn failed(&self, address: SocketAddr) {
        self.note(address, false, true);
    }

    /// The address answered that something failed there: it is alive, but another may do better.
    pub(super) fn stumbled(&self, address: SocketAddr) {
        self.note(address, true, true);
    }

    fn note(&self, address: SocketAddr, answered: bool, kept: bool) {
        let now = Instant::now();
        let troubles = &mut self.lock().troubles;
        troubles.retain(|_, trouble| now - trouble.at < MEMORY);
        if troubles.len() < REMEMBERED_MAX || troubles.contains_key(&address) {
            troubles.insert(address, Trouble { at: now, answered, kept });
        }
        self.troubled.store(true, Ordering::Relaxed);
    }

    /// The address answered.
    pub(super) fn answered(&self, address: SocketAddr) {
        if !self.troubled.load(Ordering::Relaxed) {
            return;
        }
        let now = Instant::now();
        let troubles = &mut self.lock().troubles;
        if let Some(trouble) = troubles.get_mut(&address) {
            trouble.answered = true;
        }
        let some = troubles.values().any(|trouble| trouble.counts(Choice::AnyWell, now));
        self.troubled.store(some, Ordering::Relaxed);
    }

    /// Whether a connection that has been kept may be to an address that has failed lately without an answer since.
    pub(super) fn troubled(&self) -> bool {
        let now = Instant::now();
        let of_kept = |trouble: &Trouble| trouble.kept && trouble.counts(Choice::AnyWell, now);
        self.troubled.load(Ordering::Relaxed) && self.lock().troubles.values().any(of_kept)
    }

    /// Whether a connection that has been kept is not to be trusted: its address has failed since it was made, and has not
    /// answered since.
    pub(super) fn distrusts(&self, peer: &Peer) -> bool {
        let trouble = self.lock().troubles.get(&peer.address).copied();
        trouble.is_some_and(|trouble| peer.since < trouble.at && trouble.counts(Choice::AnyWell, Instant::now()))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds the lock")
    }
}

/// Addresses of the family that the resolver prefers come first (RFC 6724), taking turns; those that failed come last, the
/// one whose failure is longest ago first.
fn order(
    mut found: Vec<SocketAddr>,
    turn: usize,
    choice: Choice,
    troubles: &HashMap<SocketAddr, Trouble>,
    now: Instant,
) -> Vec<SocketAddr> {
    let preferred = found.first().is_some_and(SocketAddr::is_ipv4);
    found.sort_unstable();
    found.dedup();
    let (mut first, mut second): (Vec<_>, Vec<_>) = found.into_iter().partition(|address| address.is_ipv4() == preferred);
    for family in [&mut first, &mut second].into_iter().filter(|family| !family.is_empty()) {
        let by = turn % family.len();
        family.rotate_left(by);
    }
    first.append(&mut second);
    first.sort_by_key(|address| troubles.get(address).filter(|trouble| trouble.counts(choice, now)).map(|trouble| trouble.at));
    first.truncate(TRIED_MAX);
    first
}

/// Watches over something that an address is asked for: if it is given up after more than [`PATIENCE`], the address has failed.
pub(super) struct Watch {
    addresses: Arc<Addresses>,
    address: Option<SocketAddr>,
    since: Instant,
}

impl Watch {
    pub(super) fn new(addresses: &Arc<Addresses>, address: SocketAddr) -> Self {
        Self { addresses: Arc::clone(addresses), address: Some(address), since: Instant::now() }
    }

    /// It is over, and whoever watches knows how it went.
    pub(super) fn over(mut self) {
        self.address = None;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(address) = self.address.filter(|_| self.since.elapsed() >= PATIENCE) {
            self.addresses.unreached(address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn address(host: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, host], 80))
    }

    fn addresses(hosts: &'static [u8]) -> Arc<Addresses> {
        Addresses::new(Arc::new(|_, _| Box::pin(async { Ok(hosts.iter().copied().map(address).collect()) })), SECOND)
    }

    async fn first(addresses: &Addresses, choice: Choice) -> SocketAddr {
        addresses.of("store", 80, choice).await.expect("found")[0]
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_take_turns() {
        let addresses = addresses(&[3, 1, 2, 1]);
        let mut seen = Vec::new();
        for _ in 0..6 {
            seen.push(first(&addresses, Choice::AnyWell).await);
        }
        assert_eq!(seen, [1, 2, 3, 1, 2, 3].map(address));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_failed_comes_last_until_it_answers_or_is_forgiven() {
        let addresses = addresses(&[1, 2]);
        addresses.failed(address(1));
        for _ in 0..4 {
            assert_eq!(addresses.of("store", 80, Choice::AnyWell).await.expect("found"), [2, 1].map(address));
        }
        addresses.answered(address(1));
        assert!(!addresses.troubled());
        let seen = [first(&addresses, Choice::AnyWell).await, first(&addresses, Choice::AnyWell).await];
        assert!(seen.contains(&address(1)), "it takes its turns again");
        for _ in 0..4 {
            assert_eq!(first(&addresses, Choice::Elsewhere).await, address(2), "but a retry wants another");
        }
        tokio::time::sleep(MEMORY).await;
        let seen = [first(&addresses, Choice::Elsewhere).await, first(&addresses, Choice::Elsewhere).await];
        assert!(seen.contains(&address(1)), "in the end all is forgiven");
    }

    #[tokio::test(start_paused = true)]
    async fn where_all_failed_the_oldest_failure_is_tried_first() {
        let addresses = addresses(&[1, 2, 3]);
        for host in [2, 3, 1] {
            addresses.failed(address(host));
            tokio::time::sleep(SECOND).await;
        }
        assert_eq!(addresses.of("store", 80, Choice::AnyWell).await.expect("found"), [2, 3, 1].map(address));
    }

    #[tokio::test(start_paused = true)]
    async fn the_family_that_the_resolver_prefers_stays_in_front() {
        let six: SocketAddr = "[::1]:80".parse().expect("an address");
        for preferred in [six, address(1)] {
            let other = if preferred == six { address(1) } else { six };
            let resolve: Resolve = Arc::new(move |_, _| Box::pin(async move { Ok(vec![preferred, other]) }));
            let addresses = Addresses::new(resolve, SECOND);
            for _ in 0..3 {
                assert_eq!(first(&addresses, Choice::AnyWell).await, preferred);
            }
            addresses.failed(preferred);
            assert_eq!(first(&addresses, Choice::AnyWell).await, other);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_kept_connection_is_distrusted_while_its_address_is_silent() {
        let addresses = addresses(&[1]);
        let old = Peer { address: address(1), since: Instant::now() };
        tokio::time::sleep(SECOND).await;
        assert!(!addresses.distrusts(&old));
        addresses.failed(address(1));
        tokio::time::sleep(SECOND).await;
        let new = Peer { address: address(1), since: Instant::now() };
        assert!(addresses.distrusts(&old) && !addresses.distrusts(&new));
        addresses.answered(address(1));
        assert!(!addresses.distrusts(&old));
        addresses.stumbled(address(1));
        assert!(!addresses.distrusts(&old), "an error is an answer");
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_was_given_up_late_counts_as_a_failure() {
        let addresses = addresses(&[1, 2]);
        drop(Watch::new(&addresses, address(1)));
        let settled = Watch::new(&addresses, address(1));
        let stalled = Watch::new(&addresses, address(2));
        tokio::time::sleep(PATIENCE).await;
        settled.over();
        assert!(!addresses.troubled.load(Ordering::Relaxed));
        drop(stalled);
        assert_eq!(first(&addresses, Choice::AnyWell).await, address(1));
        assert_eq!(first(&addresses, Choice::AnyWell).await, address(1));
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_was_never_met_casts_no_doubt_on_what_is_kept() {
        let addresses = addresses(&[1, 2]);
        addresses.connected(address(2));
        addresses.unreached(address(1));
        assert!(!addresses.troubled());
        assert_eq!(first(&addresses, Choice::AnyWell).await, address(2), "though it goes last");
        addresses.unreached(address(2));
        assert!(addresses.troubled(), "connections that are kept may be as dead");
        tokio::time::sleep(KEPT_MAX).await;
        addresses.unreached(address(2));
        assert!(!addresses.troubled(), "none is kept any more");
        addresses.connected(address(2));
        addresses.failed(address(2));
        assert!(addresses.troubled());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_remembered_is_bounded() {
        let addresses = addresses(&[1]);
        for n in 0..=u8::MAX {
            addresses.failed(SocketAddr::from(([10, 1, 0, n], 80)));
            addresses.failed(SocketAddr::from(([10, 2, 0, n], 80)));
        }
        assert_eq!(addresses.lock().troubles.len(), REMEMBERED_MAX);
    }

    #[tokio::test]
    async fn the_system_takes_an_address_for_a_name() {
        assert_eq!(system()("127.0.0.1".to_owned(), 7).await.expect("found"), [SocketAddr::from(([127, 0, 0, 1], 7))]);
    }
}
