//! The processes of the campaign, `batchgate serve` as store and as gateway: how they are started, what they and the kernel say
//! of themselves, and how they end. Invariant: whatever was started here is ended here.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::wire::{read_body, read_head};
use crate::{Fallible, fail};

/// Key pair of the clients, at the gateway.
pub const CLIENT: (&str, &str) = ("GKCAMPAIGN", "secret-of-the-campaigns-clients");

/// Key pair of the gateway, at the store.
pub const STORE: (&str, &str) = ("BKCAMPAIGN", "secret-of-the-campaigns-gateway");

/// Region of both.
pub const REGION: &str = "us-east-1";

/// Settings of the gateway under test that the campaign reckons with. All are small, so that all are met.
pub mod limits {
    use std::time::Duration;

    /// `server.memory_bytes_max`.
    pub const MEMORY_BYTES: u64 = 24 << 20;
    /// What a process may take beside its budget, as documented.
    pub const MEMORY_OVER_BYTES: u64 = 64 << 20;
    /// `server.header_timeout`.
    pub const HEADER: Duration = Duration::from_secs(3);
    /// `server.body_idle_timeout`.
    pub const BODY_IDLE: Duration = Duration::from_secs(2);
    /// `backends.connect_timeout`.
    pub const CONNECT: Duration = Duration::from_millis(500);
    /// `backends.response_timeout`.
    pub const RESPONSE: Duration = Duration::from_secs(3);
    /// `batch.entry_deadline`.
    pub const ENTRY: Duration = Duration::from_secs(5);
    /// `batch.client_stall`.
    pub const CLIENT_STALL: Duration = Duration::from_secs(3);
    /// `batch.concurrency`.
    pub const FAN_OUT: u64 = 16;
    /// `backends.concurrency`.
    pub const PERMITS: u64 = 32;
}

/// A process that ends with this value.
pub struct Process {
    child: Child,
    /// Where it speaks S3.
    pub s3: SocketAddr,
    /// Where it speaks of itself.
    pub admin: SocketAddr,
    log: PathBuf,
}

/// What the kernel says of a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Resources {
    /// Resident memory, in bytes.
    pub rss: u64,
    /// The most that it ever was.
    pub peak: u64,
    /// Threads.
    pub threads: u64,
    /// Open descriptors.
    pub descriptors: u64,
}

/// Settings of a store in memory.
pub fn store_settings() -> String {
    format!(
        "[server]\nlisten = [\"127.0.0.1:0\"]\nidle_timeout = \"10m\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [[backends]]\nname = \"memory\"\nkind = \"embedded\"\nmemory_bytes_max = \"4GiB\"\n\
         [log]\naccess = false\n\
         [[identities]]\nname = \"gateway\"\naccess_key = \"{}\"\nsecret_key = \"{}\"\npolicy = \"full-access\"\n",
        STORE.0, STORE.1
    )
}

/// Settings of the gateway in front of `endpoint`, whose key pair is `store`.
pub fn gateway_settings(endpoint: &str, store: (&str, &str)) -> String {
    let ms = |duration: Duration| format!("{}ms", duration.as_millis());
    format!(
        "[server]\nlisten = [\"127.0.0.1:0\"]\nmemory_bytes_max = {}\nchunk_bytes_max = \"1MiB\"\nrequests_max = 256\n\
         connections_max = 512\nheader_timeout = \"{}\"\nbody_idle_timeout = \"{}\"\nidle_timeout = \"20s\"\n\
         [admin]\nlisten = \"127.0.0.1:0\"\n\
         [[backends]]\nname = \"store\"\nendpoint = \"{endpoint}\"\n\
         credentials = {{ source = \"static\", access_key = \"{}\", secret_key = \"{}\" }}\n\
         connect_timeout = \"{}\"\nattempt_timeout = \"1s\"\nresponse_timeout = \"{}\"\nconcurrency = {}\nconcurrency_min = 4\n\
         [batch]\nentries_max = 1000\nbody_bytes_max = \"512KiB\"\nentry_bytes = \"64KiB\"\nwindow_bytes = \"1MiB\"\n\
         concurrency = {}\nentry_deadline = \"{}\"\nclient_stall = \"{}\"\n\
         [tail]\nbackoff_base = \"20ms\"\nbackoff_max = \"300ms\"\n\
         [log]\naccess = false\n\
         [[identities]]\nname = \"campaign\"\naccess_key = \"{}\"\nsecret_key = \"{}\"\npolicy = \"full-access\"\n",
        limits::MEMORY_BYTES,
        ms(limits::HEADER),
        ms(limits::BODY_IDLE),
        store.0,
        store.1,
        ms(limits::CONNECT),
        ms(limits::RESPONSE),
        limits::PERMITS,
        limits::FAN_OUT,
        ms(limits::ENTRY),
        ms(limits::CLIENT_STALL),
        CLIENT.0,
        CLIENT.1,
    )
}

/// Whether a process can be given a table of names of its own here, and by which command.
pub fn own_names(hosts: &Path) -> Option<&'static [&'static str]> {
    const WAYS: [&[&str]; 2] = [&["--mount"], &["--mount", "--map-root-user"]];
    std::fs::write(hosts, "127.0.0.1 localhost\n127.0.0.2 probe.campaign\n").ok()?;
    WAYS.into_iter().find(|way| {
        let script = "mount --bind \"$0\" /etc/hosts && grep -q probe.campaign /etc/hosts";
        let mut probe = Command::new("unshare");
        probe.args(*way).args(["sh", "-c", script]).arg(hosts).stdout(Stdio::null()).stderr(Stdio::null());
        probe.status().is_ok_and(|status| status.success())
    })
}

impl Process {
    /// Starts `batchgate serve` with these settings; under a table of names of its own if there is one and a way.
    pub fn start(folder: &Path, name: &str, settings: &str, names: Option<(&Path, &[&str])>) -> Fallible<Self> {
        let file = folder.join(format!("{name}.toml"));
        std::fs::write(&file, settings)?;
        let log = folder.join(format!("{name}.log"));
        let binary = std::env::vars().find(|(name, _)| name == "BATCHGATE_BIN").map(|(_, path)| path);
        let binary = binary.unwrap_or_else(|| env!("CARGO_BIN_EXE_batchgate").to_owned());
        let mut command = match names {
            Some((hosts, way)) => {
                let mut command = Command::new("unshare");
                command.args(way).args(["sh", "-c", "mount --bind \"$0\" /etc/hosts && exec \"$@\""]).arg(hosts).arg(&binary);
                command
            }
            None => Command::new(&binary),
        };
        // What is in the environment of whoever runs the campaign must not change settings.
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("BATCHGATE_") || name.starts_with("AWS_")) {
            command.env_remove(name);
        }
        let mut child = command
            .args(["serve", "--config"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&log)?)
            .spawn()?;
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let mut address = |what: &str| -> Option<SocketAddr> {
            lines.by_ref().map_while(Result::ok).find_map(|line| line.strip_prefix(what)?.parse().ok())
        };
        let addresses = (address("listening s3 http://"), address("listening admin http://"));
        let (Some(s3), Some(admin)) = addresses else {
            drop(child.kill());
            drop(child.wait());
            return fail(format!("{name} did not start: {}", std::fs::read_to_string(&log)?));
        };
        Ok(Self { child, s3, admin, log })
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<String> {
        self.child.try_wait().ok().flatten().map(|status| status.to_string())
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// All that it logged.
    pub fn log(&self) -> Fallible<String> {
        Ok(String::from_utf8_lossy(&std::fs::read(&self.log)?).into_owned())
    }

    /// Kills it, as an enemy would.
    pub fn kill(&mut self) {
        drop(self.child.kill());
    }

    /// Ends it as an operator would, and says how it ended; an error after `patience`.
    pub async fn stop(&mut self, patience: Duration) -> Result<String, String> {
        let told = Command::new("kill").args(["-TERM", &self.pid().to_string()]).status();
        if !told.is_ok_and(|status| status.success()) {
            return Err(self.ended().map_or_else(|| "it cannot be told to end".into(), |how| format!("it had ended: {how}")));
        }
        let until = Instant::now() + patience;
        loop {
            match self.ended() {
                Some(how) => return Ok(how),
                None if Instant::now() > until => return Err(format!("it has not ended {patience:?} after SIGTERM")),
                None => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to do.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// What the kernel says of a process.
pub fn resources(pid: u32) -> Fallible<Resources> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let number = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let (Some(rss), Some(peak), Some(threads)) = (number("VmRSS:"), number("VmHWM:"), number("Threads:")) else {
        return fail("/proc/PID/status is not as expected");
    };
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd"))?.count() as u64;
    Ok(Resources { rss: rss * 1024, peak: peak * 1024, threads, descriptors })
}

/// Every metric by its name, summed over its labels.
pub async fn metrics(admin: SocketAddr) -> Fallible<BTreeMap<String, f64>> {
    let text = page(admin, "/metrics").await?;
    let mut out = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, value)) = line.rsplit_once(' ') else { continue };
        let name = name.split('{').next().unwrap_or(name);
        *out.entry(name.to_owned()).or_default() += value.parse::<f64>()?;
    }
    Ok(out)
}

/// A page of the admin port.
pub async fn page(admin: SocketAddr, path: &str) -> Fallible<String> {
    let asked = async {
        let mut stream = TcpStream::connect(admin).await?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\n\r\n").as_bytes()).await?;
        let mut buffer = BytesMut::new();
        let head = read_head(&mut stream, &mut buffer).await?.ok_or("the admin port says nothing")?;
        let body = read_body(&mut stream, &mut buffer, &head, false).await?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    };
    tokio::time::timeout(Duration::from_secs(20), asked).await.map_err(|_| "the admin port does not answer")?
}

/// Gauges that must be at zero when nobody asks for anything.
pub fn at_rest(name: &str) -> bool {
    name.starts_with("batchgate_")
        && (["_in_flight", "_in_use", "_reserved_bytes"].iter().any(|end| name.ends_with(end))
            || name == "batchgate_edge_connections")
}
