//! Processes under measurement: the gateway and the origin, how they are started and ended, and what the kernel says of them.
//! What enters is what to run; what leaves are addresses and peak memory. Invariant: whatever was started here is ended here.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use super::{Fallible, fail};

/// The key pair of client and gateway; a secret of nobody.
pub const ACCESS_KEY: &str = "AKIABENCH";
/// Its secret.
pub const SECRET_KEY: &str = "bench";

/// For an origin that may be on any free port.
pub const ANYWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// A process that ends with this value.
pub struct Process {
    child: Child,
    /// Where it answers.
    pub address: SocketAddr,
    /// Lines that it printed once it listened.
    said: Vec<String>,
    /// The folder with its settings, which ends with it.
    _dir: Option<tempfile::TempDir>,
}

impl Process {
    /// Starts the simulated origin at `address`; it answers at most `concurrency` requests at once.
    pub fn origin(address: SocketAddr, concurrency: usize) -> Fallible<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["origin", &address.to_string(), &concurrency.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        match lines(&mut child).next().map(|line| line?.parse::<SocketAddr>().map_err(Into::into)) {
            Some(Ok(address)) => Ok(Self { child, address, said: Vec::new(), _dir: None }),
            other => abandon(child, "the origin", other.map(|r: Fallible<_>| r.map(|_| ()))),
        }
    }

    /// Starts a gateway in front of `origin`. `server` are lines of its `[server]` table and tables behind it, `backend` lines
    /// of its backend's; all else is the defaults. Its log goes to a file.
    pub fn gateway(origin: SocketAddr, server: &str, backend: &str) -> Fallible<Self> {
        let dir = tempfile::tempdir()?;
        let file = dir.path().join("batchgate.toml");
        std::fs::write(&file, settings_file(origin, server, backend))?;
        let log = std::fs::File::create(dir.path().join("log"))?;
        let mut child = Command::new(env!("CARGO_BIN_EXE_batchgate"))
            .args(["serve", "--config"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()?;
        // To the last line that it prints, because a pipe that is closed before would end it.
        let mut said: Vec<String> = Vec::new();
        for line in lines(&mut child).map_while(Result::ok) {
            let is_last = line.starts_with("listening admin");
            said.push(line);
            if is_last {
                break;
            }
        }
        match said_address(&said, "s3") {
            Some(address) => Ok(Self { child, address, said, _dir: Some(dir) }),
            None => {
                let said = std::fs::read_to_string(dir.path().join("log"))?;
                abandon(child, "the gateway", Some(fail(said)))
            }
        }
    }

    /// Where a gateway says that its port `s3` or `admin` is.
    pub fn listening(&self, port: &str) -> Fallible<SocketAddr> {
        said_address(&self.said, port).ok_or_else(|| format!("it did not say where {port} is").into())
    }

    /// For the kernel.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Peak of resident memory so far (`VmHWM`), in bytes.
    pub fn peak_bytes(&self) -> Fallible<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        Ok(kib.ok_or("no VmHWM in /proc")? * 1024)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn said_address(said: &[String], port: &str) -> Option<SocketAddr> {
    said.iter().find_map(|line| line.strip_prefix("listening ")?.strip_prefix(port)?.strip_prefix(" http://")?.parse().ok())
}

fn settings_file(origin: SocketAddr, server: &str, backend: &str) -> String {
    format!(
        r#"[server]
listen = ["127.0.0.1:0"]
{server}

[admin]
listen = "127.0.0.1:0"

[[backends]]
name = "origin"
kind = "s3"
endpoint = "http://{origin}"
credentials = {{ source = "static", access_key = "{ACCESS_KEY}", secret_key = "{SECRET_KEY}" }}
{backend}

[[identities]]
name = "load"
access_key = "{ACCESS_KEY}"
secret_key = "{SECRET_KEY}"
policy = "full-access"
"#
    )
}

fn lines(child: &mut Child) -> std::io::Lines<BufReader<std::process::ChildStdout>> {
    BufReader::new(child.stdout.take().expect("it is piped")).lines()
}

fn abandon<T>(mut child: Child, what: &str, said: Option<Fallible<()>>) -> Fallible<T> {
    let _ = child.kill();
    let _ = child.wait();
    let said = said.and_then(Result::err).map_or_else(String::new, |error| error.to_string());
    fail(format!("{what} did not start: {}", said.trim()))
}
