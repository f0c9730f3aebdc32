//! How the program stores its relative relocations: `tools/link.rs`.

use std::fs;

use super::PROGRAM;

/// `SHT_RELA` and `SHT_RELR` of the ELF specification.
const RELA: u32 = 4;
const RELR: u32 = 19;

/// Octets of an entry of `SHT_RELA`.
const RELA_OCTETS: u64 = 24;

/// Relocations that stay: those of symbols, and of addresses that the packed form has no room for.
const RELA_MAX: u64 = 2_000;

/// The version that a program with packed relocations requires of the loader. An older loader refuses
/// to start the program, and names this version.
const REQUIREMENT: &[u8] = b"\0GLIBC_ABI_DT_RELR\0";

/// Returns the octets in all sections of a type.
fn octets_of(elf: &[u8], kind: u32) -> u64 {
    assert!(
        elf.starts_with(b"\x7fELF\x02\x01"),
        "64 bits, little-endian"
    );
    let number = |at: usize, octets: usize| {
        let mut number = [0; 8];
        number[..octets].copy_from_slice(&elf[at..at + octets]);
        u64::from_le_bytes(number)
    };
    let (table, entry, entries) = (number(0x28, 8), number(0x3a, 2), number(0x3c, 2));
    let sections = (0..entries).map(|nth| (table + nth * entry) as usize);
    let of_kind = sections.filter(|at| number(at + 4, 4) == u64::from(kind));
    of_kind.map(|at| number(at + 32, 8)).sum()
}

/// The build script has found out whether a program runs that is linked in this way.
#[test]
fn relocations_are_packed_where_the_loader_reads_them() {
    let elf = fs::read(PROGRAM).expect("the program");
    let packed = env!("CAMBRIC_PACKED_RELOCATIONS") == "true";
    let required = elf
        .windows(REQUIREMENT.len())
        .any(|part| part == REQUIREMENT);
    assert_eq!((octets_of(&elf, RELR) > 0, required), (packed, packed));
    let others = octets_of(&elf, RELA) / RELA_OCTETS;
    assert!(
        !packed || others < RELA_MAX,
        "{others} relocations are not packed"
    );
}

/// The other programs are linked in the same way.
#[test]
fn every_program_is_linked_by_the_same_script() {
    for program in [
        "bgp-client",
        "cli",
        "cni-plugin",
        "felix",
        "route-reflector",
    ] {
        let path = format!("{}/../{program}/Cargo.toml", env!("CARGO_MANIFEST_DIR"));
        let manifest = fs::read_to_string(&path).expect("a manifest");
        assert!(
            manifest.contains("\nbuild = \"../tools/link.rs\"\n"),
            "{path}"
        );
    }
}
