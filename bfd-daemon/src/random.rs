//! Random numbers of the system: discriminators must not be predictable.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read};

use bfd::Random;

/// Numbers that are read at once.
const NUMBERS: usize = 64;

/// The random source of the system.
#[derive(Debug)]
pub(crate) struct SystemRandom {
    file: File,
    numbers: Vec<u64>,
}

impl SystemRandom {
    /// Opens the source.
    ///
    /// # Errors
    ///
    /// The system has none.
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self {
            file: File::open("/dev/urandom")?,
            numbers: Vec::new(),
        })
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut octets = [0; NUMBERS * 8];
        self.file.read_exact(&mut octets)?;
        let (numbers, _) = octets.as_chunks::<8>();
        self.numbers = numbers.iter().map(|one| u64::from_ne_bytes(*one)).collect();
        Ok(())
    }
}

impl Random for SystemRandom {
    fn next_u64(&mut self) -> u64 {
        if self.numbers.is_empty() && self.fill().is_err() {
            // The standard library has a key of the system, which is not known outside either.
            return RandomState::new().hash_one(self.numbers.len());
        }
        self.numbers.pop().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn numbers_are_not_repeated() {
        let mut random = SystemRandom::open().expect("a system with random numbers");
        let numbers: BTreeSet<u64> = (0..NUMBERS * 3).map(|_| random.next_u64()).collect();
        assert_eq!(numbers.len(), NUMBERS * 3);
    }
}
