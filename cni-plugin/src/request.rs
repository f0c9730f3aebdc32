//! The request of a runtime: environment variables, and JSON on standard input.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::failure::{Code, Failure};
use crate::limits::{CONTAINER_ID_OCTETS_MAX, REQUEST_OCTETS_MAX};

/// The requested operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Connect a container.
    Add,
    /// Disconnect it.
    Del,
    /// Check whether it is connected as before.
    Check,
    /// Remove objects that belong to no attachment any more.
    Gc,
    /// Report whether ADD can work.
    Status,
    /// Report the supported versions.
    Version,
}

impl Command {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "ADD" => Self::Add,
            "DEL" => Self::Del,
            "CHECK" => Self::Check,
            "GC" => Self::Gc,
            "STATUS" => Self::Status,
            "VERSION" => Self::Version,
            _ => return None,
        })
    }

    const fn is_of_a_container(self) -> bool {
        matches!(self, Self::Add | Self::Del | Self::Check)
    }
}

/// A request.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The requested operation.
    pub command: Command,
    /// The container; empty for commands without one.
    pub container_id: String,
    /// Its network namespace, if it still has one.
    pub netns: Option<PathBuf>,
    /// The interface in the container.
    pub ifname: String,
    /// `CNI_ARGS`: further arguments of the runtime.
    pub args: BTreeMap<String, String>,
    /// Directories of other plugins.
    pub path: Vec<PathBuf>,
    /// The network's configuration.
    pub config: Value,
}

impl Request {
    /// Reads the request of this process.
    ///
    /// # Errors
    ///
    /// The input is not a valid request.
    pub fn read() -> Result<Self, Failure> {
        let mut text = String::new();
        let mut input = std::io::stdin().lock().take(REQUEST_OCTETS_MAX + 1);
        input
            .read_to_string(&mut text)
            .map_err(|error| Failure::new(Code::Io, format!("standard input: {error}")))?;
        if text.len() as u64 > REQUEST_OCTETS_MAX {
            let message = format!("standard input: more than {REQUEST_OCTETS_MAX} octets");
            return Err(Failure::new(Code::Decode, message));
        }
        Self::of(|name| std::env::var_os(name), &text)
    }

    /// Parses a request from these variables and this text.
    ///
    /// # Errors
    ///
    /// A part is missing or invalid.
    pub fn of(variable: impl Fn(&str) -> Option<OsString>, input: &str) -> Result<Self, Failure> {
        let text = |name: &str| -> Result<String, Failure> {
            let value = variable(name).unwrap_or_default();
            value.into_string().map_err(|_| wrong(name, "is not text"))
        };
        let name = text("CNI_COMMAND")?;
        let command = Command::of(&name).ok_or_else(|| {
            wrong(
                "CNI_COMMAND",
                &format!("is \"{name}\", which is no command"),
            )
        })?;
        let request = Self {
            command,
            container_id: text("CNI_CONTAINERID")?,
            netns: Some(text("CNI_NETNS")?)
                .filter(|path| !path.is_empty())
                .map(PathBuf::from),
            ifname: text("CNI_IFNAME")?,
            args: args(command, &text("CNI_ARGS")?)?,
            path: std::env::split_paths(&text("CNI_PATH")?)
                .filter(|path| path != Path::new(""))
                .collect(),
            config: config(command, input)?,
        };
        request.check()?;
        Ok(request)
    }

    fn check(&self) -> Result<(), Failure> {
        if !self.command.is_of_a_container() {
            return Ok(());
        }
        if let Some(problem) = id_problem(&self.container_id) {
            return Err(wrong("CNI_CONTAINERID", problem));
        }
        if let Some(problem) = ifname_problem(&self.ifname) {
            return Err(wrong("CNI_IFNAME", problem));
        }
        if self.command != Command::Del && self.netns.is_none() {
            return Err(wrong("CNI_NETNS", "is missing"));
        }
        Ok(())
    }

    /// Returns the version of the network's configuration, as written there.
    pub fn version(&self) -> &str {
        self.config["cniVersion"].as_str().unwrap_or_default()
    }
}

fn wrong(name: &str, problem: &str) -> Failure {
    Failure::new(Code::Environment, format!("{name} {problem}"))
}

fn config(command: Command, input: &str) -> Result<Value, Failure> {
    // Older callers send nothing with VERSION.
    if command == Command::Version && input.trim().is_empty() {
        return Ok(Value::Null);
    }
    match serde_json::from_str(input) {
        Ok(config @ Value::Object(_)) => Ok(config),
        Ok(_) => Err(Failure::new(
            Code::Decode,
            "standard input: not a JSON object",
        )),
        Err(error) => Err(Failure::new(
            Code::Decode,
            format!("standard input: {error}"),
        )),
    }
}

/// Parses `FOO=BAR;ABC=123`. DEL must not fail for a part that it does not need.
fn args(command: Command, text: &str) -> Result<BTreeMap<String, String>, Failure> {
    let pairs = text.split(';').filter(|pair| !pair.is_empty());
    pairs
        .filter(|pair| command != Command::Del || pair.contains('='))
        .map(|pair| match pair.split_once('=') {
            Some((key, value)) => Ok((key.trim().to_owned(), value.trim().to_owned())),
            None => Err(wrong(
                "CNI_ARGS",
                &format!("has \"{pair}\", which is not KEY=VALUE"),
            )),
        })
        .collect()
}

fn id_problem(id: &str) -> Option<&'static str> {
    let of_ids = |c: u8| c.is_ascii_alphanumeric() || b"_.-".contains(&c);
    match id.as_bytes() {
        [] => Some("is missing"),
        [first, ..] if !first.is_ascii_alphanumeric() => {
            Some("begins with neither letter nor digit")
        }
        id if !id.iter().all(|c| of_ids(*c)) => {
            Some("has other characters than letters, digits, '_', '.' and '-'")
        }
        [.., b'-'] => Some("ends with '-', which no endpoint's name can"),
        id if id.len() > CONTAINER_ID_OCTETS_MAX => Some("is too long"),
        _ => None,
    }
}

fn ifname_problem(name: &str) -> Option<&'static str> {
    let bad = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
    match name {
        "" => Some("is missing"),
        "." | ".." => Some("is no name of an interface"),
        name if name.len() > calico_model::INTERFACE_NAME_OCTETS_MAX => {
            Some("is too long for an interface")
        }
        name if name.contains(bad) => Some("has a character that names of interfaces cannot have"),
        name if name.starts_with('-') || name.ends_with('-') => {
            Some("begins or ends with '-', which no endpoint's name can")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)], input: &str) -> Result<Request, (u16, String)> {
        let found = |name: &str| {
            let mut all = variables.iter();
            all.find(|(key, _)| *key == name)
                .map(|(_, value)| OsString::from(value))
        };
        Request::of(found, input).map_err(|failure| (failure.code, failure.message))
    }

    const ADD: [(&str, &str); 6] = [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", "9f3c"),
        ("CNI_NETNS", "/run/netns/a"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAME=web-0"),
        ("CNI_PATH", "/opt/cni/bin:/usr/lib/cni"),
    ];

    #[test]
    fn a_request_is_read() {
        let request = read(&ADD, r#"{"cniVersion":"1.0.0"}"#).unwrap();
        assert_eq!(
            (request.command, request.version()),
            (Command::Add, "1.0.0")
        );
        assert_eq!(request.args["K8S_POD_NAME"], "web-0");
        assert_eq!(request.path.len(), 2);
    }

    #[test]
    fn missing_or_wrong_variable_is_named() {
        let with = |name: &'static str, value: &'static str| {
            let mut all = ADD.to_vec();
            all.retain(|(key, _)| *key != name);
            all.push((name, value));
            read(&all, "{}").unwrap_err()
        };
        for (name, value) in [
            ("CNI_COMMAND", "JUMP"),
            ("CNI_CONTAINERID", ""),
            ("CNI_CONTAINERID", "-a"),
            ("CNI_CONTAINERID", "a/b"),
            ("CNI_CONTAINERID", "a-"),
            ("CNI_NETNS", ""),
            ("CNI_IFNAME", ""),
            ("CNI_IFNAME", "a/b"),
            ("CNI_IFNAME", "sixteen_octets_x"),
            ("CNI_ARGS", "novalue"),
        ] {
            let (code, message) = with(name, value);
            assert!(
                code == 4 && message.starts_with(name),
                "{name}={value}: {code} {message}"
            );
        }
        assert_eq!(read(&ADD, "[]").unwrap_err().0, 6);
        assert_eq!(read(&ADD, "{").unwrap_err().0, 6);
        // DEL may arrive after the namespace is removed; GC and STATUS concern no container.
        let del = [
            ("CNI_COMMAND", "DEL"),
            ("CNI_CONTAINERID", "a"),
            ("CNI_IFNAME", "eth0"),
            ("CNI_ARGS", "novalue"),
        ];
        assert_eq!(read(&del, "{}").unwrap().netns, None);
        assert!(read(&[("CNI_COMMAND", "GC")], "{}").is_ok());
        assert!(read(&[("CNI_COMMAND", "VERSION")], "").is_ok());
    }
}
