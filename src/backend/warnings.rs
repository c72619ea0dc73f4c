//! Warnings about a backend of which one cause would make thousands, one for each read of a batch: each kind is written once a
//! second at the most. Invariant: the first of a kind is always written.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

/// Between two lines of one kind.
const PAUSE: Duration = Duration::from_secs(1);

/// Kinds of such warnings.
#[derive(Clone, Copy, Debug)]
pub enum Warning {
    /// An answer cannot be read, or not be used.
    NotHttp,
    /// An answer is not what was asked for.
    Lies,
    /// The backend refuses the gateway's credentials.
    Credentials,
}

/// When each kind was last written, for one backend.
#[derive(Debug, Default)]
pub struct Warnings {
    last: Mutex<[Option<Instant>; 3]>,
}

impl Warnings {
    /// Whether to write a line of this kind now; whoever is told so writes it.
    pub fn due(&self, kind: Warning) -> bool {
        let now = Instant::now();
        let last = &mut self.last.lock().expect("comparing times does not panic")[kind as usize];
        let due = last.is_none_or(|last| now - last >= PAUSE);
        if due {
            *last = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_kind_is_written_once_a_second() {
        let warnings = Warnings::default();
        let due = |kind| (0..1000).filter(|_| warnings.due(kind)).count();
        assert_eq!((due(Warning::NotHttp), due(Warning::Lies), due(Warning::Credentials)), (1, 1, 1));
        tokio::time::advance(PAUSE).await;
        assert_eq!((due(Warning::Lies), due(Warning::Lies)), (1, 0));
    }
}
