//! Opens files, compressed or not.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use bzip2::bufread::MultiBzDecoder;
use flate2::bufread::MultiGzDecoder;

use crate::reader::Reader;

/// Octets read from the disk, and decompressed, at once.
const BUFFER_OCTETS: usize = 128 << 10;

/// Plain octets of a file.
pub struct Source(Box<dyn Read + Send>);

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Source")
    }
}

impl Source {
    /// Decompresses `input` if its first octets are those of gzip or bzip2.
    ///
    /// # Errors
    ///
    /// Errors of the first read.
    pub fn new(input: impl BufRead + Send + 'static) -> io::Result<Self> {
        let mut input = input;
        let decoded: Box<dyn Read + Send> = match input.fill_buf()? {
            [0x1f, 0x8b, ..] => Box::new(MultiGzDecoder::new(input)),
            [b'B', b'Z', b'h', ..] => Box::new(MultiBzDecoder::new(input)),
            _ => return Ok(Self(Box::new(input))),
        };
        Ok(Self(Box::new(BufReader::with_capacity(
            BUFFER_OCTETS,
            decoded,
        ))))
    }
}

impl Read for Source {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

/// Opens a file: plain, gzip or bzip2, detected by its first octets.
///
/// # Errors
///
/// Errors of opening the file and of the first read.
pub fn open(path: &Path) -> io::Result<Reader<Source>> {
    let file = BufReader::with_capacity(BUFFER_OCTETS, File::open(path)?);
    Ok(Reader::new(Source::new(file)?))
}
