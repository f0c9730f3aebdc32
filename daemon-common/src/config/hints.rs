//! Remedies for values that do not fit their key: what an operator probably meant.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use toml::de::DeValue;

use super::keys::Type;

/// Words beside the caret, and the remedy.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Hint {
    pub(super) label: Option<String>,
    pub(super) help: Option<String>,
}

fn help(help: impl Into<String>) -> Option<Hint> {
    Some(Hint {
        label: None,
        help: Some(help.into()),
    })
}

fn both(label: impl Into<String>, help: impl Into<String>) -> Option<Hint> {
    Some(Hint {
        label: Some(label.into()),
        help: Some(help.into()),
    })
}

/// Describes a value.
pub(super) fn given_words(value: &DeValue<'_>) -> String {
    let words = match value {
        DeValue::String(_) => "this is a text",
        DeValue::Integer(number) => return format!("this is {number}"),
        DeValue::Float(_) => "this is a fraction",
        DeValue::Boolean(flag) => return format!("this is {flag}"),
        DeValue::Datetime(_) => "this is a date or time",
        DeValue::Array(_) => "this is a list",
        DeValue::Table(_) => "this is a single section",
    };
    words.to_owned()
}

/// Returns what to write in place of a value that does not fit; `None` if it fits, or if the remedy
/// is not obvious.
pub(super) fn hint(key: &str, kind: Type, value: &DeValue<'_>) -> Option<Hint> {
    match (kind, value) {
        (Type::Sections, DeValue::Table(_)) => {
            help(format!("write `[[{key}]]`, once for each of them"))
        }
        (Type::Section, DeValue::Table(_)) => None,
        (Type::Section, _) => help(format!(
            "write `[{key}]` on a line of its own, and its keys on the lines below"
        )),
        (Type::List(_), DeValue::Array(_)) => None,
        (Type::List(_), _) => help(format!("write it in brackets: `{key} = […]`")),
        (Type::Flag, DeValue::String(word)) => help(flag(word)?),
        (Type::Flag, DeValue::Integer(number)) => help(flag(number.as_str())?),
        (kind, DeValue::String(text)) if kind.is_number() => number(kind, text),
        (kind, DeValue::Float(_)) if kind.is_number() => help("write it without a fraction"),
        (kind, DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_))
            if kind.is_quoted() =>
        {
            help("put it in quotation marks")
        }
        (Type::Address | Type::Ipv4 | Type::Quad | Type::Ipv6, DeValue::String(text)) => {
            address(kind, text)
        }
        (Type::Listener, DeValue::String(text)) => listener(text),
        _ => None,
    }
}

/// Returns the remedy for a word in place of a truth value.
pub(super) fn flag(word: &str) -> Option<&'static str> {
    match word.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" | "enabled" => Some("write true, without quotation marks"),
        "false" | "no" | "off" | "0" | "disabled" => Some("write false, without quotation marks"),
        _ => None,
    }
}

/// A number in quotation marks, with a unit, or by its name.
fn number(kind: Type, text: &str) -> Option<Hint> {
    let text = text.trim();
    if kind == Type::Table
        && let Some(table) = table(text)
    {
        return help(format!("the table `{text}` is number {table}"));
    }
    if kind == Type::Protocol && text.chars().any(char::is_alphabetic) {
        return help("`ip route` prints the number after `proto`, or a name of rt_protos");
    }
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (digits, unit) = text.split_at(digits);
    let number: u64 = digits.parse().ok()?;
    let factor = match unit.trim() {
        "" => return help(format!("write {number}, without quotation marks")),
        "s" | "sec" | "second" | "seconds" => 1,
        "m" | "min" | "minute" | "minutes" => 60,
        "h" | "hour" | "hours" => 3600,
        _ => return None,
    };
    let seconds = number
        .checked_mul(factor)
        .filter(|_| kind == Type::Seconds)?;
    help(format!(
        "write {seconds}, without quotation marks and without a unit"
    ))
}

fn table(name: &str) -> Option<u8> {
    match name {
        "main" => Some(254),
        "default" => Some(253),
        "local" => Some(255),
        _ => None,
    }
}

pub(super) fn address(kind: Type, text: &str) -> Option<Hint> {
    match (kind, text.parse::<IpAddr>()) {
        (Type::Ipv4 | Type::Quad, Ok(IpAddr::V6(_))) => return label("this is an IPv6 address"),
        (Type::Ipv6, Ok(IpAddr::V4(_))) => return label("this is an IPv4 address"),
        (_, Ok(_)) => return None,
        (_, Err(_)) => {}
    }
    if let Some((address, length)) = text.split_once('/')
        && address.parse::<IpAddr>().is_ok()
    {
        return both(
            "this is a prefix",
            format!("leave out the prefix length: /{length}"),
        );
    }
    if let Ok(with_port) = text.parse::<SocketAddr>() {
        return both(
            "this has a port",
            format!("leave out the port {}", with_port.port()),
        );
    }
    if let Some(octet) = wrong_octet(text) {
        return label(format!("{octet} is not from 0 to 255"));
    }
    let is_name = text.chars().any(|c| c.is_ascii_alphabetic()) && !text.contains(':');
    if is_name {
        return both(
            "this is a name",
            "names are not resolved: write the address",
        );
    }
    label("this is not an address")
}

fn label(label: impl Into<String>) -> Option<Hint> {
    Some(Hint {
        label: Some(label.into()),
        help: None,
    })
}

fn listener(text: &str) -> Option<Hint> {
    if text.parse::<SocketAddr>().is_ok() {
        return None;
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        let form = match address {
            IpAddr::V4(v4) => format!("{v4}:PORT"),
            IpAddr::V6(v6) => format!("[{v6}]:PORT"),
        };
        return both("the port is missing", format!("add the port: \"{form}\""));
    }
    if let Some(port) = text.strip_prefix(':').or_else(|| text.strip_prefix("*:"))
        && port.parse::<u16>().is_ok()
    {
        return both(
            "the address is missing",
            format!("all addresses are \"0.0.0.0:{port}\" and \"[::]:{port}\""),
        );
    }
    let (host, port) = text.rsplit_once(':')?;
    if let Some(octet) = wrong_octet(host) {
        return label(format!("{octet} is not from 0 to 255"));
    }
    if host.parse::<Ipv4Addr>().is_ok() {
        return label(format!("the port `{port}` is not from 0 to 65535"));
    }
    if host.contains(':') && !host.starts_with('[') {
        return help("write an IPv6 address in brackets: \"[::1]:179\"");
    }
    both(
        "the address is invalid",
        "names are not resolved: write the address",
    )
}

/// Returns the part of a text in the form of an IPv4 address that is beyond an octet.
pub(super) fn wrong_octet(text: &str) -> Option<&str> {
    let mut parts = text.split('.');
    let is_quad = parts.clone().count() == 4;
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit());
    (is_quad && parts.clone().all(is_number))
        .then(|| parts.find(|part| part.parse::<u8>().is_err()))
        .flatten()
}
