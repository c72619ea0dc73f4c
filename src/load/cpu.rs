//! What the kernel says that a process has spent. What enters is a process id; what leaves is CPU time.

use std::io;

/// Unit of CPU times in `/proc`, in seconds: the kernel's `USER_HZ`, 100 on every architecture that Linux has today.
const TICK_SECONDS: f64 = 0.01;

/// CPU time that a process has taken so far, in user mode and in the kernel, in seconds, to a hundredth.
///
/// # Errors
/// If there is no such process, or no `/proc`.
pub fn cpu_seconds(pid: u32) -> io::Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    parse(&stat).ok_or_else(|| io::Error::other("/proc/PID/stat is not as expected"))
}

fn parse(stat: &str) -> Option<f64> {
    // The name of the program, in brackets, may hold anything; utime and stime are the 12th and 13th field behind it.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut ticks = fields.split_whitespace().skip(11).map(|field| field.parse::<u64>().ok());
    Some((ticks.next()?? + ticks.next()??) as f64 * TICK_SECONDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_kernel_time_are_added_whatever_the_program_is_called() {
        let stat = "77 (a) b (c)) S 1 77 77 0 -1 4194304 100 0 0 0 250 75 9 9 20 0 1 0 123 456 789";
        assert_eq!(parse(stat), Some(3.25));
        assert_eq!(parse("77 (a) S 1 2"), None);
        assert_eq!(parse(""), None);
    }
}
