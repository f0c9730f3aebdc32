//! The command lines of the page, against what they print.

use std::process::Command;

use super::{output, pcap};

const PAGE: &str = include_str!("../../../docs/operate/decode.md");

/// The UPDATE of the page: 10.65.0.0/26 of AS 65001.
const UPDATE: [u8; 55] = [
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    0, 55, 2, 0, 0, 0, 27, 0x40, 1, 1, 0, 0x40, 2, 6, 2, 1, 0, 0, 0xfd, 0xe9, 0x40, 3, 4, 10, 0, 0,
    1, 0x40, 5, 4, 0, 0, 0, 100, 26, 10, 65, 0, 0,
];

#[test]
fn captures_are_printed_as_on_the_page() {
    let directory = tempfile::tempdir().unwrap();
    let mut keepalive = UPDATE[..19].to_vec();
    keepalive[17..].copy_from_slice(&[19, 4]);
    let octets = pcap::capture(&[keepalive, UPDATE.to_vec()]);
    std::fs::write(directory.path().join("session.pcap"), octets).unwrap();
    let mut compared = 0;
    for block in PAGE.split("```").skip(1).step_by(2) {
        let Some((line, expected)) = block.trim_start().split_once('\n') else {
            continue;
        };
        let Some(arguments) = line.strip_prefix("$ cambric decode --pcap") else {
            continue;
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_cambric"));
        command
            .args(["decode", "--pcap"])
            .args(arguments.split_whitespace());
        assert_eq!(
            output(command.current_dir(directory.path())),
            expected,
            "{line}"
        );
        compared += 1;
    }
    assert_eq!(compared, 2);
}
