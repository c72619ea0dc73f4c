//! Wildcards of policies and routes: `*` stands for any run of bytes, `?` for any one byte. What enters is a pattern and a text in
//! pieces; what leaves is whether all of the text fits. No step allocates, and no pattern makes the time grow faster than its
//! own length times the text's: only the last `*` is ever tried again.

/// A text that is never joined, because a policy is asked for thousands of keys in one request.
#[derive(Clone, Copy)]
pub struct Pieces<'a, const N: usize>(
    /// One after another.
    pub [&'a [u8]; N],
);

impl<const N: usize> Pieces<'_, N> {
    fn len(&self) -> usize {
        self.0.iter().map(|piece| piece.len()).sum()
    }

    fn at(&self, mut index: usize) -> u8 {
        for piece in self.0 {
            match piece.get(index) {
                Some(byte) => return *byte,
                None => index -= piece.len(),
            }
        }
        unreachable!("the caller asks below len()")
    }

    fn starts_with(&self, mut prefix: &[u8]) -> bool {
        for piece in self.0 {
            let common = piece.len().min(prefix.len());
            if piece[..common] != prefix[..common] {
                return false;
            }
            prefix = &prefix[common..];
        }
        prefix.is_empty()
    }
}

/// A pattern, sorted at parse time into the shapes that policies are mostly made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Everything.
    Any,
    /// This text and no other.
    Exact(Box<[u8]>),
    /// Whatever starts with this text (one `*` at the end).
    Prefix(Box<[u8]>),
    /// Any other mix.
    Glob(Box<[u8]>),
}

impl Pattern {
    /// The pattern that `text` writes; every text is one.
    pub fn new(text: &str) -> Self {
        let bytes = text.as_bytes();
        let stem = text.trim_end_matches('*').as_bytes();
        let plain = !stem.iter().any(|b| matches!(b, b'*' | b'?'));
        match (plain, stem.len() < bytes.len()) {
            (true, true) if stem.is_empty() => Self::Any,
            (true, true) => Self::Prefix(stem.into()),
            (true, false) => Self::Exact(bytes.into()),
            (false, _) => Self::Glob(bytes.into()),
        }
    }

    /// Whether every text that starts with `s3:` fits.
    pub fn covers_s3(&self) -> bool {
        match self {
            Self::Any => true,
            Self::Prefix(prefix) => b"s3:".starts_with(prefix),
            Self::Exact(_) | Self::Glob(_) => false,
        }
    }

    /// Whether all of `text` fits.
    pub fn matches<const N: usize>(&self, text: &Pieces<'_, N>) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(literal) => text.len() == literal.len() && text.starts_with(literal),
            Self::Prefix(prefix) => text.starts_with(prefix),
            Self::Glob(pattern) => glob(pattern, text.len(), |i| text.at(i)),
        }
    }
}

fn glob(pattern: &[u8], text_len: usize, text: impl Fn(usize) -> u8) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where the last `*` stands, and the first text byte that it does not cover yet.
    let mut star = None;
    while t < text_len {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(byte) if *byte == b'?' || *byte == text(t) => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((star_p, star_t)) = star else { return false };
                star = Some((star_p, star_t + 1));
                p = star_p + 1;
                t = star_t + 1;
            }
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The rule written as it is said, exponential and obviously right.
    fn naive(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern.split_first(), text.split_first()) {
            (None, None) => true,
            (Some((b'*', rest)), _) => naive(rest, text) || (!text.is_empty() && naive(pattern, &text[1..])),
            (Some((p, rest)), Some((t, tail))) => (*p == b'?' || p == t) && naive(rest, tail),
            _ => false,
        }
    }

    #[test]
    fn shapes_are_told_apart() {
        assert_eq!(Pattern::new("*"), Pattern::Any);
        assert_eq!(Pattern::new("***"), Pattern::Any);
        assert_eq!(Pattern::new("a*"), Pattern::Prefix(b"a".as_slice().into()));
        assert_eq!(Pattern::new("ab"), Pattern::Exact(b"ab".as_slice().into()));
        assert_eq!(Pattern::new("a*b"), Pattern::Glob(b"a*b".as_slice().into()));
        assert_eq!(Pattern::new("?*"), Pattern::Glob(b"?*".as_slice().into()));
    }

    #[test]
    fn a_hostile_pattern_takes_bounded_steps() {
        let pattern = Pattern::new(&("*a".repeat(200) + "b"));
        let text = "a".repeat(1024);
        assert!(!pattern.matches(&Pieces([text.as_bytes()])));
    }

    proptest! {
        #[test]
        fn prop_a_pattern_matches_as_the_plain_rule_says(pattern in "[ab?*]{0,8}", text in "[ab]{0,10}", cut in 0usize..11) {
            let (left, right) = text.as_bytes().split_at(cut.min(text.len()));
            let ours = Pattern::new(&pattern).matches(&Pieces([left, b"", right]));
            prop_assert_eq!(ours, naive(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
