//! Values as the text of a table.

use daemon_common::report::{FibHop, FibRoute, Neighbor, NeighborFamily};

/// Returns a duration with at most two units: `3d04h`, `2h05m`, `7m01s`, `12s`.
pub(crate) fn duration(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{:02}s", seconds % 60),
        (0, _, _) => format!("{hours}h{:02}m", minutes % 60),
        _ => format!("{days}d{:02}h", hours % 24),
    }
}

/// Returns an instant of Unix time as date and time, UTC.
pub(super) fn utc(seconds: u64) -> String {
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}Z")
}

/// Returns year, month and day of the Gregorian calendar, so many days after 1970-01-01.
fn date(days: u64) -> (u64, u64, u64) {
    // Eras of 400 years; years begin in March, so that leap days come last.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (era * 400 + year + next, month, day)
}

/// Returns an optional value, or a dash.
pub(super) fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| clean(&value.to_string()))
}

/// Returns text of an external source, with terminal control characters escaped.
pub(crate) fn clean(text: &str) -> String {
    text.chars()
        .fold(String::with_capacity(text.len()), |mut clean, c| {
            match c {
                c if c.is_control() => clean.extend(c.escape_default()),
                c => clean.push(c),
            }
            clean
        })
}

/// Returns a short name: `ipv4` for `ipv4-unicast`.
pub(super) fn family(name: &str) -> &str {
    name.strip_suffix("-unicast").unwrap_or(name)
}

/// Returns the number of paths of a neighbor, family by family.
pub(super) fn received(neighbor: &Neighbor) -> String {
    let one =
        |counters: &NeighborFamily| format!("{} {}", family(&counters.family), counters.received);
    match neighbor.families.as_slice() {
        [] => "-".to_owned(),
        families => {
            let mut text = families.iter().map(one).collect::<Vec<_>>().join(", ");
            if let Some(left) = neighbor.stale_for_s {
                text.push_str(&format!(" (stale, {} left)", duration(left)));
            }
            if let Some(left) = neighbor.barred_for_s {
                let down = neighbor.last_down.as_deref().unwrap_or_default();
                let why = match down.contains("Out of Resources") {
                    true => "memory_max reached",
                    false => "prefix limit exceeded",
                };
                text.push_str(&format!(" ({why}, idle hold {})", duration(left)));
            }
            text
        }
    }
}

/// Returns the last error of a neighbor, and since when it is the last.
pub(super) fn last_error(neighbor: &Neighbor) -> Option<String> {
    let error = neighbor.last_error.as_ref()?;
    Some(match neighbor.last_error_for_s {
        Some(seconds) => format!("{error} (since {})", duration(seconds)),
        None => error.clone(),
    })
}

/// Returns the next hops of a kernel route, or what the kernel does with its packets instead.
pub(super) fn via(route: &FibRoute) -> String {
    let one = |hop: &FibHop| match (&hop.gateway, &hop.interface) {
        (Some(gateway), Some(interface)) => format!("{gateway} on {interface}"),
        (Some(gateway), None) => gateway.to_string(),
        (None, Some(interface)) => interface.clone(),
        (None, None) => "-".to_owned(),
    };
    match (route.next_hops.as_slice(), route.kind.as_str()) {
        ([], "" | "unicast") => "-".to_owned(),
        ([], kind) => clean(kind),
        (hops, _) => hops.iter().map(one).collect::<Vec<_>>().join(", "),
    }
}

/// Returns values separated by spaces.
pub(super) fn list<T: ToString>(values: &[T]) -> String {
    match values {
        [] => "-".to_owned(),
        values => {
            let words: Vec<String> = values
                .iter()
                .map(|value| clean(&value.to_string()))
                .collect();
            words.join(" ")
        }
    }
}
