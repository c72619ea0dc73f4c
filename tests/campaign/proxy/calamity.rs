//! What befalls the store as a whole: listeners that close and open, addresses that come and go, bursts. What enters is the
//! calendar of a storm; it is kept as the clock allows, and when each thing was is noted.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Past, Proxy, locked};
use crate::Fallible;
use crate::faults::{Calamity, calendar};

/// Where the store's name may lead.
pub const ADDRESSES: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)), IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3))];

/// The name of the store, where the gateway has a table of names of its own.
pub const NAME: &str = "store.campaign";

/// The addresses of the store, of which one is lived at.
pub struct Streets {
    proxy: Arc<Proxy>,
    /// The port at each.
    pub port: u16,
    /// The gateway's own `/etc/hosts`, if it has one.
    hosts: Option<PathBuf>,
    home: Mutex<Home>,
}

struct Home {
    at: usize,
    moves: usize,
    open: CancellationToken,
    connections: CancellationToken,
}

impl Streets {
    /// Moves in at the first address. Without a table of names there is only that one.
    pub async fn open(proxy: &Arc<Proxy>, hosts: Option<PathBuf>) -> Fallible<Self> {
        let first = TcpListener::bind((ADDRESSES[0], 0)).await?;
        let home = Home { at: 0, moves: 0, open: CancellationToken::new(), connections: CancellationToken::new() };
        let streets = Self { proxy: Arc::clone(proxy), port: first.local_addr()?.port(), hosts, home: Mutex::new(home) };
        streets.write_names()?;
        streets.accept(first);
        Ok(streets)
    }

    /// What the gateway is told.
    pub fn endpoint(&self) -> String {
        match &self.hosts {
            Some(_) => format!("http://{NAME}:{}", self.port),
            None => format!("http://{}", SocketAddr::new(ADDRESSES[0], self.port)),
        }
    }

    /// Keeps the calendar of a storm until it is over.
    pub async fn storm(&self, seed: u64, round: u64, length: Duration) -> Fallible<()> {
        let began = Instant::now();
        for appointment in calendar(seed, round, length) {
            tokio::time::sleep_until(began + appointment.at).await;
            let past = Past { what: appointment.what, from: Instant::now(), to: None };
            let nth = {
                let mut all = locked(&self.proxy.past);
                all.push(past);
                all.len() - 1
            };
            self.suffer(appointment.what, appointment.lasts).await?;
            let ended = Instant::now();
            locked(&self.proxy.past)[nth].to = Some(ended);
            if matches!(appointment.what, Calamity::Refuse | Calamity::Restart) {
                *locked(&self.proxy.unrecovered) = Some(ended);
            }
        }
        tokio::time::sleep_until(began + length).await;
        Ok(())
    }

    async fn suffer(&self, what: Calamity, lasts: Duration) -> Fallible<()> {
        match what {
            Calamity::SlowDowns | Calamity::Unavailables => {
                *locked(&self.proxy.burst) = Some(what);
                tokio::time::sleep(lasts).await;
                *locked(&self.proxy.burst) = None;
                return Ok(());
            }
            Calamity::Refuse => self.close(false),
            Calamity::Restart => self.close(true),
            Calamity::Move => {
                self.close(true);
                if self.hosts.is_some() {
                    let mut home = locked(&self.home);
                    home.at = 1 - home.at;
                    home.moves += 1;
                }
                self.write_names()?;
            }
        }
        tokio::time::sleep(lasts).await;
        let at = locked(&self.home).at;
        // The kernel may take a moment to give the address back.
        let mut tries = 0;
        let listener = loop {
            match TcpListener::bind((ADDRESSES[at], self.port)).await {
                Ok(listener) => break listener,
                Err(_) if tries < 100 => tries += 1,
                Err(error) => return Err(error.into()),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        self.accept(listener);
        Ok(())
    }

    fn close(&self, reset: bool) {
        let mut home = locked(&self.home);
        home.open.cancel();
        home.open = CancellationToken::new();
        if reset {
            home.connections.cancel();
            home.connections = CancellationToken::new();
        }
    }

    fn accept(&self, listener: TcpListener) {
        let (open, connections) = {
            let home = locked(&self.home);
            (home.open.clone(), home.connections.clone())
        };
        let proxy = Arc::clone(&self.proxy);
        tokio::spawn(async move {
            loop {
                let accepted = tokio::select! {
                    () = open.cancelled() => return,
                    accepted = listener.accept() => accepted,
                };
                match accepted {
                    Ok((stream, _)) => {
                        let (proxy, reset) = (Arc::clone(&proxy), connections.clone());
                        tokio::spawn(async move { proxy.serve(stream, reset).await });
                    }
                    Err(_) => {
                        proxy.store_failures.fetch_add(1, Ordering::Relaxed);
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                }
            }
        });
    }

    /// After every other move the name still leads to the old address as well, and there first.
    fn write_names(&self) -> Fallible<()> {
        let Some(path) = &self.hosts else { return Ok(()) };
        let (at, moves) = {
            let home = locked(&self.home);
            (home.at, home.moves)
        };
        let mut text = String::from("127.0.0.1 localhost\n");
        if moves % 2 == 1 {
            writeln!(text, "{} {NAME}", ADDRESSES[1 - at])?;
        }
        writeln!(text, "{} {NAME}", ADDRESSES[at])?;
        // In place: the file is mounted over the gateway's.
        Ok(std::fs::write(path, text)?)
    }
}
