//! The limit of the octets that a speaker's neighbors and groups may take.

use crate::{Config, Settings};

/// Returns `memory_max` of the file; without the key, the limit of this process's control group.
pub(crate) fn octets_max<S: Settings>(config: &Config<S>) -> Option<usize> {
    match &config.file.memory_max {
        Some(set) => set.get_ref().0,
        None => usize::try_from(daemon_common::cgroup::memory_max()?).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::tests::Plain;
    use bgp_config::Source;

    fn of(key: &str) -> Option<usize> {
        let text = format!("asn = 64512\nrouter_id = \"10.0.0.1\"\n{key}\n");
        let config = Config::<Plain>::parse(&Source::new("daemon.toml", text));
        octets_max(&config.expect("a valid file"))
    }

    #[test]
    fn memory_max_of_the_file_has_precedence() {
        assert_eq!(of("memory_max = 1048576"), Some(1 << 20));
        assert_eq!(of("memory_max = \"1048577\""), Some((1 << 20) + 1));
        assert_eq!(of("memory_max = \"2048K\""), Some(2 << 20));
        assert_eq!(of("memory_max = \"512M\""), Some(512 << 20));
        assert_eq!(of("memory_max = \"3G\""), Some(3 << 30));
        assert_eq!(of("memory_max = \"none\""), None);
        let group = daemon_common::cgroup::memory_max();
        assert_eq!(of(""), group.and_then(|octets| octets.try_into().ok()));
    }
}
