//! File descriptors: each connection takes one, and what the process may open is often less than what it was told to serve.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What a process needs beside its connections: log, listeners, timers, a file that is read.
const OTHERS: u64 = 64;

/// Lets the process open `connections` sockets and what it needs beside them, as far as it may: the soft limit is raised, the
/// hard one cannot be. Gives what an operator should know where that is too little.
pub fn provide(connections: u64) -> Option<String> {
    let needed = connections.saturating_add(OTHERS);
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return None;
    }
    let possible = limit.maximum.map_or(needed, |maximum| maximum.min(needed));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(possible), maximum: limit.maximum });
    let now = if raised.is_ok() { possible } else { limit.current.unwrap_or(possible) };
    (now < needed).then(|| {
        format!(
            "the process may open {now} files, but server.connections_max and the backends' connections need {needed}: raise its \
             hard limit (ulimit -Hn, LimitNOFILE), or lower server.connections_max"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_says_nothing_and_what_no_limit_allows_is_told() {
        assert_eq!(provide(1), None);
        if getrlimit(Resource::Nofile).maximum.is_some() {
            let told = provide(u64::MAX / 2).expect("no hard limit is so high");
            assert!(told.contains("connections_max") && told.contains("hard limit"), "{told}");
            let limit = getrlimit(Resource::Nofile);
            assert_eq!(limit.current, limit.maximum, "raised as far as it goes");
        }
    }
}
