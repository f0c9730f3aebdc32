//! Names of address families in a file.

use bgp_proto::{FAMILIES, Family, FamilySet};

use super::{bad, good};

#[test]
fn families_are_read_by_their_common_names() {
    let intent = good("families = [\"ipv4 unicast\", \"vpnv4-unicast\", \"evpn\"]");
    let wanted: FamilySet = [Family::IPV4_UNICAST, Family::IPV4_VPN, Family::L2VPN_EVPN]
        .into_iter()
        .collect();
    assert_eq!(intent.speaker.families, wanted);
}

#[test]
fn add_path_send_entry_under_a_second_name_is_refused() {
    let text = "[[neighbor]]\naddress = \"10.0.0.1\"\nasn = 64512\nadd_path = \"send\"\n\
                add_path_send = { ipv4-unicast = 2, ipv4 = \"all\" }";
    let report = bad(text, "7:19");
    assert!(
        report.contains("a second entry for ipv4-unicast"),
        "{report}"
    );
}

#[test]
fn page_lists_every_family_and_alias() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../docs/operate/route-reflector.md"
    );
    let page = std::fs::read_to_string(path).expect("the page is there");
    for row in FAMILIES {
        let aliases: Vec<String> = row.aliases.iter().map(|name| format!("`{name}`")).collect();
        let line = format!("| `{}` | {} |", row.name, aliases.join(", "));
        assert!(
            page.contains(&line.replace("|  |", "| |")),
            "{path} lacks: {line}"
        );
    }
}
