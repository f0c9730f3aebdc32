//! The numbers of this process, from `/proc`.

use std::fs;

use crate::daemon::open_files;
use crate::report::ProcessFigures;

/// Clock ticks in a second in `/proc`: `USER_HZ`, on all architectures in use.
const TICKS_PER_SECOND: u64 = 100;
/// The places of fields in `/proc/self/stat` after the name of the program (proc(5)).
const USER_TICKS: usize = 11;
const KERNEL_TICKS: usize = 12;
const START_TICKS: usize = 19;
const VIRTUAL_OCTETS: usize = 20;

/// Returns the numbers of this process.
pub fn figures() -> ProcessFigures {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let files = open_files();
    ProcessFigures {
        open_fds: files.map(|(used, _)| used),
        max_fds: files.map(|(_, limit)| limit),
        resident_memory_bytes: crate::daemon::resident_kib().map(|kib| kib.saturating_mul(1024)),
        ..parsed(
            &read("/proc/self/stat"),
            &read("/proc/self/limits"),
            &read("/proc/stat"),
        )
    }
}

/// Returns the numbers in the texts of `/proc/self/stat`, `/proc/self/limits` and `/proc/stat`.
fn parsed(own: &str, limits: &str, machine: &str) -> ProcessFigures {
    // The name may contain spaces and parentheses.
    let fields = own.rsplit_once(") ").map_or("", |(_, fields)| fields);
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let field = |at: usize| -> Option<u64> { fields.get(at)?.parse().ok() };
    let ms = |ticks: u64| ticks.saturating_mul(1000 / TICKS_PER_SECOND);
    let cpu = || Some(field(USER_TICKS)?.saturating_add(field(KERNEL_TICKS)?));
    let boot_s = || -> Option<u64> {
        let mut lines = machine.lines();
        let text = lines.find_map(|line| line.strip_prefix("btime "))?;
        text.trim().parse().ok()
    };
    let start = || {
        let boot_ms = boot_s()?.saturating_mul(1000);
        Some(boot_ms.saturating_add(ms(field(START_TICKS)?)))
    };
    let max = || -> Option<u64> {
        let mut lines = limits.lines();
        let line = lines.find_map(|line| line.strip_prefix("Max address space"))?;
        match line.split_whitespace().next()? {
            "unlimited" => Some(u64::MAX),
            text => text.parse().ok(),
        }
    };
    ProcessFigures {
        cpu_ms: cpu().map(ms),
        virtual_memory_bytes: field(VIRTUAL_OCTETS),
        virtual_memory_max_bytes: max(),
        start_ms: start(),
        ..ProcessFigures::default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    #[test]
    fn numbers_of_proc_are_parsed_whatever_the_name_is() {
        let own = "7 (a) R (b) S 1 7 7 0 -1 4194560 900 0 3 0 150 50 0 0 20 0 4 0 12345 26214400 2000 \
                   18446744073709551615 1 1 0";
        let limits = "Limit  Soft Limit  Hard Limit  Units\n\
                      Max address space         unlimited            unlimited            bytes\n";
        let found = parsed(own, limits, "cpu 1 2 3\nbtime 1700000000\nprocesses 9\n");
        assert_eq!(found.cpu_ms, Some(2000));
        assert_eq!(found.virtual_memory_bytes, Some(26_214_400));
        assert_eq!(found.virtual_memory_max_bytes, Some(u64::MAX));
        assert_eq!(found.start_ms, Some(1_700_000_123_450));
        let limited = parsed("", "Max address space 4096 8192 bytes\n", "");
        assert_eq!(limited.virtual_memory_max_bytes, Some(4096));
        for text in [
            "",
            ")",
            "7 (a",
            "7 (a) R 1",
            "7 (a) R x x x x x x x x x x x x",
        ] {
            assert_eq!(
                parsed(text, "", "btime x"),
                ProcessFigures::default(),
                "{text}"
            );
        }
    }

    #[test]
    fn numbers_of_this_process_are_known() {
        let found = figures();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        assert!(
            found
                .start_ms
                .is_some_and(|ms| u128::from(ms) <= now.as_millis() + 1000)
        );
        assert!(found.cpu_ms.is_some() && found.virtual_memory_max_bytes.is_some());
        assert!(found.open_fds >= Some(3) && found.max_fds >= found.open_fds);
        assert!(found.virtual_memory_bytes >= found.resident_memory_bytes);
    }
}
