//! What is right. What enters is what was asked for, the time in which it was, and an answer's head and octets as they come;
//! what leaves is a sentence if they are not right. Knows nothing of faults: what excuses an error is not its business.

use std::ops::Range;

use batchgate::types::{ByteRange, ContentRange};
use tokio::time::Instant;

use crate::plan::Entry;
use crate::world::{Generation, Object, World};

/// An entry as it was sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// As planned.
    pub entry: Entry,
    /// `If-Match`, with quotes.
    pub if_match: Option<String>,
    /// `If-None-Match`, with quotes.
    pub if_none_match: Option<String>,
}

/// An object on its way in.
#[derive(Debug)]
pub struct Coming {
    object: usize,
    generation: Generation,
    span: Range<u64>,
    at: u64,
    wrong: Option<u64>,
}

/// The head of an answer that has an object, or says that it has not changed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Said<'a> {
    /// Status.
    pub status: u16,
    /// `ETag`.
    pub etag: Option<&'a str>,
    /// Length of the body, if it is said.
    pub length: Option<u64>,
    /// `Content-Range`.
    pub range: Option<&'a str>,
}

impl Sent {
    /// The object, if it is one of the world.
    pub fn object<'a>(&self, world: &'a World) -> Option<&'a Object> {
        self.entry.object.map(|index| &world.objects[index])
    }

    fn span(&self, size: u64) -> Option<Range<u64>> {
        match &self.entry.range {
            None => Some(0..size),
            Some(range) => ByteRange::parse(range).ok()?.resolve(size),
        }
    }

    /// Whether an error status is what a store without faults answers, at some moment of this time.
    pub fn is_due(&self, world: &World, status: u16, time: &Range<Instant>) -> bool {
        let Some(object) = self.object(world) else { return status == 404 };
        object.between(time).iter().any(|generation| {
            let passes = self.if_match.as_ref().is_none_or(|tag| *tag == generation.etag);
            match status {
                412 => !passes,
                416 => passes && self.span(generation.size).is_none(),
                _ => false,
            }
        })
    }

    /// Whether 304 is right.
    pub fn not_modified(&self, world: &World, said: Said<'_>, time: &Range<Instant>) -> Result<(), String> {
        let right = self.object(world).is_some_and(|object| {
            object.between(time).iter().any(|generation| self.if_none_match.as_ref() == Some(&generation.etag))
        });
        match (right, said.length.unwrap_or_default()) {
            (true, 0) => Ok(()),
            (true, length) => Err(format!("304 with a body of {length} bytes")),
            (false, _) => Err("304 to what had changed, or was not asked".into()),
        }
    }

    /// Begins an object; its octets follow.
    ///
    /// # Errors
    /// In which way the head is wrong.
    pub fn begin(&self, world: &World, said: Said<'_>, time: &Range<Instant>) -> Result<Coming, String> {
        let Some(object) = self.object(world) else { return Err(format!("{} for an object that never was", said.status)) };
        let etag = said.etag.ok_or("it has no ETag")?;
        let generation = object.by_etag(etag).ok_or_else(|| format!("its ETag {etag} was never that of {}", object.key))?;
        if !object.between(time).iter().any(|current| current.number == generation.number) {
            return Err(format!("generation {} of {} was not there while it was read", generation.number, object.key));
        }
        if self.if_match.as_ref().is_some_and(|tag| *tag != generation.etag) {
            return Err(format!("If-Match is {:?} and the ETag {etag}", self.if_match));
        }
        if self.if_none_match.as_ref() == Some(&generation.etag) {
            return Err("an object where 304 is due".into());
        }
        let due = if self.entry.range.is_some() { 206 } else { 200 };
        if said.status != due {
            return Err(format!("status {} where {due} is due", said.status));
        }
        let span = self.span(generation.size).ok_or("a range that the object has not")?;
        if said.length.is_some_and(|length| length != span.end - span.start) {
            return Err(format!("its length is {:?} where {} is due", said.length, span.end - span.start));
        }
        if due == 206 {
            let came = said.range.and_then(|range| ContentRange::parse(range).ok());
            if came.is_none_or(|came| came.span != span || came.total != generation.size) {
                return Err(format!("its Content-Range is {:?} where {span:?} of {} is due", said.range, generation.size));
            }
        }
        Ok(Coming { object: object.index, generation, at: span.start, span, wrong: None })
    }
}

impl Coming {
    /// The next octets.
    pub fn take(&mut self, world: &World, octets: &[u8]) {
        if self.wrong.is_none() && !world.objects[self.object].holds(&self.generation, self.at, octets) {
            self.wrong = Some(self.at);
        }
        self.at += octets.len() as u64;
    }

    /// What is wrong with the octets that came so far.
    pub fn wrong(&self, world: &World) -> Option<String> {
        let key = &world.objects[self.object].key;
        let wrong = self.wrong.map(|at| format!("wrong bytes of {key}, generation {}, at {at} or behind", self.generation.number));
        wrong.or_else(|| (self.at > self.span.end).then(|| format!("{key} has more bytes than it should have")))
    }

    /// What is wrong with the whole.
    pub fn finish(&self, world: &World) -> Result<(), String> {
        match self.wrong(world) {
            Some(wrong) => Err(wrong),
            None if self.at < self.span.end => {
                Err(format!("{} ended {} bytes early", world.objects[self.object].key, self.span.end - self.at))
            }
            None => Ok(()),
        }
    }
}

/// Whether these octets are what the entry asks for, of a generation of this time: for a format that has no heads.
pub fn is_whole(world: &World, sent: &Sent, octets: &[u8], time: &Range<Instant>) -> bool {
    let Some(object) = sent.object(world) else { return false };
    object.between(time).iter().any(|generation| {
        let passes = sent.if_match.as_ref().is_none_or(|tag| *tag == generation.etag);
        let span = sent.span(generation.size).filter(|span| span.end - span.start == octets.len() as u64);
        passes && span.is_some_and(|span| object.holds(generation, span.start, octets))
    })
}
