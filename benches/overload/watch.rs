//! The admin port while others make trouble at the S3 port. What enters is its address; what leaves are the times that
//! `/readyz` and `/metrics` took, each asked every 100 ms over a connection of its own, from a thread of its own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use batchgate::load::Times;
use tokio::time::Instant;

use crate::common::{Fallible, fail};

/// How often.
const PERIOD: Duration = Duration::from_millis(100);

/// One that takes longer than this is a failure.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Pages that are asked for.
const PAGES: [&str; 2] = ["/readyz", "/metrics"];

/// Asks until it is told to stop.
pub struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<[Times; 2], String>>,
}

impl Watch {
    /// Begins to ask.
    pub fn begin(admin: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        #[expect(clippy::disallowed_methods, reason = "this thread has no runtime, so that nothing in it can hold it up")]
        let thread = std::thread::spawn(move || {
            let mut times = [Times::default(), Times::default()];
            while !stopped.load(Ordering::Relaxed) {
                for (page, times) in PAGES.iter().zip(&mut times) {
                    let started = Instant::now();
                    ask(admin, page).map_err(|error| format!("{page}: {error}"))?;
                    times.record(started.elapsed());
                }
                std::thread::sleep(PERIOD);
            }
            Ok(times)
        });
        Self { stop, thread }
    }

    /// Page and times. Fails if any of them was not answered with 200.
    pub fn end(self) -> Fallible<[(&'static str, Times); 2]> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.join() {
            Ok(Ok([ready, metrics])) => Ok([(PAGES[0], ready), (PAGES[1], metrics)]),
            Ok(Err(why)) => fail(why),
            Err(_) => fail("the thread that watches panicked"),
        }
    }
}

fn ask(admin: SocketAddr, page: &str) -> std::io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&admin, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    write!(stream, "GET {page} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    match answer.starts_with(b"HTTP/1.1 200 ") {
        true => Ok(()),
        false => Err(std::io::Error::other(String::from_utf8_lossy(&answer[..answer.len().min(80)]).into_owned())),
    }
}
