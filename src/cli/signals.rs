//! What asks a process to end: SIGINT, SIGTERM and SIGHUP, unless whoever started it had them ignored (`nohup`, a shell's `&`).
//! What leaves is one message for the first of them; the second ends the process at once. Invariant: this has a thread and a
//! driver of its own, so that nothing that blocks elsewhere, such as a pipe that nobody reads, keeps a signal from being seen.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use super::EXIT_FAILED;

/// From now on, signals come as a message. To be called once.
pub(super) fn told_to_end() -> io::Result<oneshot::Receiver<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ignored = ignored(&std::fs::read_to_string("/proc/self/status").unwrap_or_default());
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let kinds = kinds.into_iter().filter(|kind| ignored & (1 << (kind.as_raw_value() - 1)) == 0);
    let mut signals = {
        let _here = runtime.enter();
        kinds.map(signal).collect::<io::Result<Vec<_>>>()?
    };
    let (tell, told) = oneshot::channel();
    let wait = async move {
        any(&mut signals).await;
        let _ = tell.send(());
        any(&mut signals).await;
        std::process::exit(i32::from(EXIT_FAILED));
    };
    std::thread::Builder::new().name("signals".into()).spawn(move || runtime.block_on(wait))?;
    Ok(told)
}

async fn any(signals: &mut [Signal]) {
    poll_fn(|context| match signals.iter_mut().any(|signal| signal.poll_recv(context).is_ready()) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

/// The signals that a process ignores, signal N as bit N-1, by its `/proc/self/status` (proc(5)); none where that says nothing.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_signals_are_ignored_is_read() {
        let status = "Name:\tx\nSigBlk:\t0000000000000004\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000002\n";
        assert_eq!(ignored(status), 1 | 1 << 12);
        assert_eq!(ignored(""), 0);
        assert_eq!(ignored("SigIgn:\tnothing"), 0);
    }
}
