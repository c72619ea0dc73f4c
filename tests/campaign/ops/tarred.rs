//! A strict reader of a tar answer, from the format itself: regular files of plain names, one after another, the summary, and
//! two empty blocks. What enters are octets in any pieces; what leaves are members.

use serde::Deserialize;

/// Size of a block, in bytes.
const BLOCK: usize = 512;

/// The last member.
const SUMMARY: &str = ".batchget-summary.json";

/// Members as they come.
#[derive(Debug, Default)]
pub struct Members {
    octets: Vec<u8>,
    summary: Option<Summary>,
    /// Empty blocks that came at the end.
    empty: usize,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Summary {
    entries: usize,
    delivered: usize,
    omitted: usize,
    stopped_at: Option<usize>,
    error: Option<Stopped>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Stopped {
    status: u16,
}

impl Members {
    /// Takes in the next octets.
    pub fn feed(&mut self, octets: &[u8]) {
        self.octets.extend_from_slice(octets);
    }

    /// The next member that is whole: its name and its octets.
    pub fn next(&mut self) -> Result<Option<(String, Vec<u8>)>, String> {
        loop {
            if self.octets.len() < BLOCK {
                return Ok(None);
            }
            if self.octets[..BLOCK].iter().all(|octet| *octet == 0) {
                self.octets.drain(..BLOCK);
                self.empty += 1;
                continue;
            }
            if self.summary.is_some() || self.empty > 0 {
                return Err("there is something behind the end of the tar".into());
            }
            let (name, size) = header(&self.octets[..BLOCK])?;
            let padded = size.div_ceil(BLOCK) * BLOCK;
            if self.octets.len() < BLOCK + padded {
                return Ok(None);
            }
            let member = self.octets[BLOCK..BLOCK + size].to_vec();
            if self.octets[BLOCK + size..BLOCK + padded].iter().any(|octet| *octet != 0) {
                return Err(format!("{name} is padded with something"));
            }
            self.octets.drain(..BLOCK + padded);
            if name != SUMMARY {
                return Ok(Some((name, member)));
            }
            self.summary = Some(serde_json::from_slice(&member).map_err(|error| format!("the summary is none: {error}"))?);
        }
    }

    /// No more octets will come: which entry stopped it, with its status.
    pub fn finish(&self) -> Result<Option<(usize, u16)>, String> {
        let Some(summary) = &self.summary else { return Err("the tar ends without its summary".into()) };
        if self.empty < 2 || !self.octets.is_empty() {
            return Err("the tar ends without its empty blocks".into());
        }
        Ok(summary.stopped_at.zip(summary.error.as_ref().map(|error| error.status)))
    }

    /// In which way the summary is not that of so many entries and members.
    pub fn disagrees(&self, entries: usize, members: usize) -> Option<String> {
        let summary = self.summary.as_ref()?;
        let adds_up = summary.stopped_at.is_some() || summary.delivered + summary.omitted == entries;
        let right = summary.entries == entries && summary.delivered == members && adds_up;
        (!right).then(|| format!("{summary:?} does not agree with {members} members for {entries} entries"))
    }
}

fn header(block: &[u8]) -> Result<(String, usize), String> {
    let text = |octets: &[u8]| {
        let end = octets.iter().position(|octet| *octet == 0).unwrap_or(octets.len());
        String::from_utf8_lossy(&octets[..end]).trim().to_owned()
    };
    let octal = |octets: &[u8]| usize::from_str_radix(&text(octets), 8).map_err(|_| "a number of a tar header is none".to_owned());
    let spaces = b"        ";
    let sum: usize = block
        .iter()
        .enumerate()
        .map(|(at, octet)| if (148..156).contains(&at) { spaces[at - 148] } else { *octet })
        .map(usize::from)
        .sum();
    if octal(&block[148..156])? != sum {
        return Err("the checksum of a tar header is wrong".into());
    }
    if block[156] != b'0' || &block[257..262] != b"ustar" || block[345] != 0 {
        return Err("a member is no regular file of a plain name".into());
    }
    Ok((text(&block[..100]), octal(&block[124..136])?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, octets: &[u8]) -> Vec<u8> {
        let mut header = tar::Header::new_ustar();
        header.set_path(name).expect("plain");
        header.set_size(octets.len() as u64);
        header.set_entry_type(tar::EntryType::Regular);
        header.set_cksum();
        let mut out = header.as_bytes().to_vec();
        out.extend_from_slice(octets);
        out.resize(out.len().div_ceil(BLOCK) * BLOCK, 0);
        out
    }

    fn read(octets: &[u8]) -> Result<(Vec<String>, Members), String> {
        let (mut members, mut names) = (Members::default(), Vec::new());
        for piece in octets.chunks(100) {
            members.feed(piece);
            while let Some((name, _)) = members.next()? {
                names.push(name);
            }
        }
        members.finish()?;
        Ok((names, members))
    }

    #[test]
    fn a_tar_is_whole_or_an_error() {
        let summary = br#"{"Entries":2,"Delivered":2,"Failed":0,"Omitted":0,"StoppedAt":null,"Bytes":3}"#;
        let whole = [member("m0", b"abc"), member("m1", b""), member(SUMMARY, summary), vec![0; 2 * BLOCK]].concat();
        let (names, members) = read(&whole).expect("whole");
        assert_eq!(names, ["m0", "m1"]);
        assert!(members.disagrees(2, 2).is_none() && members.disagrees(3, 2).is_some() && members.disagrees(2, 1).is_some());
        for end in (0..whole.len()).step_by(BLOCK) {
            assert!(read(&whole[..end]).is_err(), "{end}");
        }
        let mut wrong = whole.clone();
        wrong[0] ^= 1;
        assert!(read(&wrong).is_err());
        assert!(read(&[whole, member("m2", b"")].concat()).is_err());
    }
}
