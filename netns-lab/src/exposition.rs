//! A strict parser of OpenMetrics 1.0 text, the format of metrics endpoints.
//!
//! It accepts only the subset of Cambric's programs: families of gauges, counters, infos and unknown values,
//! without units, timestamps, exemplars or created-samples. Everything else is a fault.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::{Error, until};

/// The samples of one page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exposition {
    /// Families, each with its type.
    families: BTreeMap<String, Type>,
    /// Series as they are written, each with the whole part of its value.
    samples: BTreeMap<String, u64>,
}

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// The value can increase and decrease.
    Gauge,
    /// The value never decreases.
    Counter,
    /// The labels are the information.
    Info,
    /// A value of another system, under its name.
    Unknown,
}

/// A fault of a page.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}: {text:?}")]
pub struct Fault {
    line: usize,
    what: &'static str,
    text: String,
}

/// Scrapes a program once.
///
/// # Errors
///
/// The program does not answer, not with a page, or not with a valid one; the error contains the
/// answer.
pub async fn scrape(address: SocketAddr) -> io::Result<Exposition> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let page = answer.split_once("\r\n\r\n");
    let page = page.filter(|(head, _)| {
        let head = head.to_ascii_lowercase();
        head.starts_with("http/1.1 200 ok\r\n")
            && head.contains("\r\ncontent-type: application/openmetrics-text; version=1.0.0;")
    });
    let (_, page) = page.ok_or_else(|| io::Error::other(answer.clone()))?;
    Exposition::read(page).map_err(|fault| io::Error::other(format!("{fault}\n{page}")))
}

/// Scrapes one run of a program repeatedly.
#[derive(Clone, Debug)]
pub struct Scraper {
    address: SocketAddr,
    last: Exposition,
}

impl Scraper {
    /// Returns a scraper of the program that listens on this address.
    pub fn new(address: SocketAddr) -> Self {
        let last = Exposition::default();
        Self { address, last }
    }

    /// Scrapes until the page meets a condition.
    ///
    /// # Errors
    ///
    /// It does not within `limit`; the error contains the last page or answer.
    ///
    /// # Panics
    ///
    /// If a counter has decreased since the last page.
    pub async fn until(
        &mut self,
        limit: Duration,
        what: &str,
        wanted: impl Fn(&Exposition) -> bool,
    ) -> Result<Exposition, Error> {
        let scraped = until(limit, what, async || {
            let page = match scrape(self.address).await {
                Ok(page) => page,
                Err(error) => return Ok(Err(error.to_string())),
            };
            let fallen: Vec<&str> = page.fallen(&self.last).collect();
            assert!(fallen.is_empty(), "counters have fallen: {fallen:?}");
            self.last.clone_from(&page);
            let lacking = || format!("{page:#?}");
            Ok(wanted(&page).then_some(()).ok_or_else(lacking))
        });
        scraped.await.map(|_| self.last.clone())
    }
}

impl Exposition {
    /// Parses a page.
    ///
    /// # Errors
    ///
    /// The first fault of the page.
    pub fn read(page: &str) -> Result<Self, Fault> {
        let mut read = Self::default();
        let mut reader = Reader::default();
        let lines = page.split_inclusive('\n').enumerate();
        for (nth, line) in lines {
            let fault = |what| Fault {
                line: nth + 1,
                what,
                text: line.to_owned(),
            };
            let text = line.strip_suffix('\n');
            let text = text.ok_or_else(|| fault("it does not end"))?;
            if reader.is_over {
                return Err(fault("something behind the end"));
            }
            read.line(&mut reader, text).map_err(fault)?;
        }
        if reader.is_over {
            return Ok(read);
        }
        Err(Fault {
            line: page.lines().count(),
            what: "no # EOF",
            text: String::new(),
        })
    }

    /// Returns the whole part of the value of a series, which is given as in the text.
    pub fn value(&self, series: &str) -> Option<u64> {
        self.samples.get(series).copied()
    }

    /// Returns whether these series have these values.
    pub fn has(&self, series: &[(&str, u64)]) -> bool {
        let mut series = series.iter();
        series.all(|(name, value)| self.value(name) == Some(*value))
    }

    /// Returns the families, each with its type.
    pub fn families(&self) -> impl Iterator<Item = (&str, Type)> {
        let families = self.families.iter();
        families.map(|(name, kind)| (name.as_str(), *kind))
    }

    /// Returns all series, each with its value.
    pub fn samples(&self) -> impl Iterator<Item = (&str, u64)> {
        let samples = self.samples.iter();
        samples.map(|(series, value)| (series.as_str(), *value))
    }

    /// Returns the counters that have decreased since an earlier page.
    pub fn fallen<'p>(&'p self, before: &'p Self) -> impl Iterator<Item = &'p str> {
        let samples = self.samples().filter(|(series, value)| {
            let counts = self.families.get(family(name(series), Type::Counter));
            counts == Some(&Type::Counter) && before.value(series) > Some(*value)
        });
        samples.map(|(series, _)| series)
    }

    fn line(&mut self, reader: &mut Reader, line: &str) -> Result<(), &'static str> {
        match line.strip_prefix('#') {
            Some(" EOF") => {
                reader.is_over = true;
                Ok(())
            }
            Some(described) => self.description(reader, described),
            None => self.sample(reader, line),
        }
    }

    /// Parses `# HELP name words` or `# TYPE name type`, once each, before the samples.
    fn description(&mut self, reader: &mut Reader, line: &str) -> Result<(), &'static str> {
        let mut parts = line.strip_prefix(' ').ok_or("no space")?.splitn(3, ' ');
        let (what, name) = (parts.next(), parts.next().ok_or("no name")?);
        let words = parts.next().ok_or("no words")?;
        if name != reader.family {
            if !is_name(name)
                || [Type::Counter, Type::Info]
                    .iter()
                    .any(|t| name.ends_with(t.suffix()))
            {
                return Err("not a name of a family");
            }
            if !reader.families.insert(name.to_owned()) {
                return Err("a family in two places");
            }
            let families = std::mem::take(&mut reader.families);
            *reader = Reader {
                family: name.to_owned(),
                families,
                ..Reader::default()
            };
        }
        if reader.has_samples {
            return Err("a description behind the samples");
        }
        let was_there = match what {
            Some("HELP") => {
                unescaped(words)?;
                std::mem::replace(&mut reader.has_help, true)
            }
            Some("TYPE") => {
                let kind = Type::named(words).ok_or("a type that is not used")?;
                self.families.insert(name.to_owned(), kind).is_some()
            }
            _ => return Err("neither HELP nor TYPE"),
        };
        if was_there {
            Err("stated twice")
        } else {
            Ok(())
        }
    }

    /// Parses `name{label="value",…} number`.
    fn sample(&mut self, reader: &mut Reader, line: &str) -> Result<(), &'static str> {
        let (series, value) = line.rsplit_once(' ').ok_or("no value")?;
        let kind = self.families.get(&reader.family).ok_or("no type before")?;
        if !reader.has_help {
            return Err("no help before");
        }
        let name = name(series);
        if name.strip_suffix(kind.suffix()) != Some(&reader.family) {
            return Err("not a name of its family");
        }
        let mut labels = BTreeSet::new();
        if series.len() > name.len() {
            read_labels(&series[name.len()..], &mut labels)?;
        }
        // One family has one set of labels, so that a sum over its samples counts nothing twice.
        if reader.has_samples && labels != reader.labels {
            return Err("other labels than the sample before");
        }
        (reader.labels, reader.has_samples) = (labels, true);
        let value = whole(value).ok_or("not a number")?;
        if *kind == Type::Info && value != 1 {
            return Err("an info is 1");
        }
        match self.samples.insert(series.to_owned(), value) {
            None => Ok(()),
            Some(_) => Err("a series in two places"),
        }
    }
}

/// The state of the parser.
#[derive(Default)]
struct Reader {
    /// The present family.
    family: String,
    /// All families so far.
    families: BTreeSet<String>,
    has_help: bool,
    has_samples: bool,
    /// The names of the labels of its samples.
    labels: BTreeSet<String>,
    is_over: bool,
}

impl Type {
    fn named(name: &str) -> Option<Self> {
        match name {
            "gauge" => Some(Self::Gauge),
            "counter" => Some(Self::Counter),
            "info" => Some(Self::Info),
            "unknown" => Some(Self::Unknown),
            _ => None,
        }
    }

    /// Returns the suffix of its samples' names.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Gauge | Self::Unknown => "",
            Self::Counter => "_total",
            Self::Info => "_info",
        }
    }
}

/// Returns the whole part of a number, of which the fraction has digits only.
fn whole(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_fraction = !fraction.is_empty() && fraction.bytes().all(|one| one.is_ascii_digit());
    whole.parse().ok().filter(|_| is_fraction)
}

fn name(series: &str) -> &str {
    series.split('{').next().unwrap_or_default()
}

fn family(name: &str, kind: Type) -> &str {
    name.strip_suffix(kind.suffix()).unwrap_or(name)
}

fn is_name(name: &str) -> bool {
    let first = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    first
        && name
            .chars()
            .all(|one| one.is_ascii_alphanumeric() || one == '_')
}

/// Parses `{name="value",…}`.
fn read_labels(text: &str, names: &mut BTreeSet<String>) -> Result<(), &'static str> {
    let inner = text
        .strip_prefix('{')
        .and_then(|text| text.strip_suffix('}'));
    let mut rest = inner.ok_or("no braces")?;
    loop {
        let (name, behind) = rest.split_once("=\"").ok_or("no label")?;
        if !is_name(name) || name.starts_with("__") {
            return Err("not a name of a label");
        }
        if !names.insert(name.to_owned()) {
            return Err("a label twice");
        }
        let mut escaped = false;
        let end = behind.find(|one| {
            let ends = one == '"' && !escaped;
            escaped = one == '\\' && !escaped;
            ends
        });
        let (value, behind) = behind.split_at(end.ok_or("a value without an end")?);
        unescaped(value)?;
        rest = match &behind[1..] {
            "" => return Ok(()),
            more => more.strip_prefix(',').ok_or("no comma")?,
        };
    }
}

/// Checks that each backslash starts one of the three escapes.
fn unescaped(text: &str) -> Result<(), &'static str> {
    let mut rest = text.chars();
    while let Some(one) = rest.next() {
        if one == '\\' && !matches!(rest.next(), Some('\\' | '"' | 'n')) {
            return Err("not an escape");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
