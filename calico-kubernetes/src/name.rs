//! Names of resources: a prefix, which marks the owner, and the name of the object.

use calico_model::NAME_OCTETS_MAX;
use sha2::{Digest, Sha256};

/// The prefix of profiles of namespaces.
pub const NAMESPACE_PREFIX: &str = "kns.";

/// The prefix of profiles of service accounts.
pub const ACCOUNT_PREFIX: &str = "ksa.";

/// The prefix of policies of NetworkPolicies.
pub const POLICY_PREFIX: &str = "knp.default.";

/// The prefix of policies of ClusterNetworkPolicies in the tier of administrators.
pub const ADMIN_PREFIX: &str = "kcnp.kube-admin.";

/// The prefix of policies of ClusterNetworkPolicies in the baseline tier.
pub const BASELINE_PREFIX: &str = "kcnp.kube-baseline.";

/// The end of the name of an automatic host endpoint.
pub const HOST_ENDPOINT_SUFFIX: &str = "-auto-hep";

/// The end of a prefix before a digest instead of a name. No name of an object gives such a name.
const DIGEST: &str = "-sha256.";

/// Returns the name of a resource. If it is longer than the datastore permits, the digest of the
/// object's name is in its place, so that two objects never have one resource.
pub(crate) fn prefixed(prefix: &str, name: &str) -> String {
    let whole = format!("{prefix}{name}");
    if whole.len() <= NAME_OCTETS_MAX {
        return whole;
    }
    let digest = Sha256::digest(name);
    let digest: String = digest.iter().map(|octet| format!("{octet:02x}")).collect();
    format!("{}{DIGEST}{digest}", prefix.trim_end_matches('.'))
}

/// Returns whether a name is one that the conversion gives for this prefix: the mark of the owner.
pub fn is_owned(prefix: &str, name: &str) -> bool {
    let digest = format!("{}{DIGEST}", prefix.trim_end_matches('.'));
    name.starts_with(prefix) || name.starts_with(&digest)
}

/// Returns the name of the profile of a namespace.
pub fn namespace_profile(namespace: &str) -> String {
    prefixed(NAMESPACE_PREFIX, namespace)
}

/// Returns the name of the profile of a service account.
pub fn account_profile(namespace: &str, account: &str) -> String {
    let namespace = match namespace {
        "" => "default",
        namespace => namespace,
    };
    prefixed(ACCOUNT_PREFIX, &format!("{namespace}.{account}"))
}

/// Returns the name of the policy of a NetworkPolicy.
pub fn policy_name(policy: &str) -> String {
    prefixed(POLICY_PREFIX, policy)
}

/// Returns the names that the policy of a ClusterNetworkPolicy can have: one for each tier.
pub fn cluster_policy_names(policy: &str) -> [String; 2] {
    [ADMIN_PREFIX, BASELINE_PREFIX].map(|prefix| prefixed(prefix, policy))
}

/// Returns the name of the automatic host endpoint of a node. As in Calico, a digest is in the place of a
/// name that is too long.
pub fn host_endpoint_name(node: &str) -> String {
    let whole = format!("{node}{HOST_ENDPOINT_SUFFIX}");
    if whole.len() <= NAME_OCTETS_MAX {
        return whole;
    }
    let digest = letters_of_digest(node).to_lowercase();
    format!("{digest}{HOST_ENDPOINT_SUFFIX}")
}

/// Returns a SHA-256 digest in base64url, without the digits that are neither letters nor numbers.
pub(crate) fn letters_of_digest(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let digest = Sha256::digest(text);
    let mut text = String::new();
    let (mut bits, mut count) = (0_u32, 0);
    let mut push = |bits: u32| {
        let digit = DIGITS.get((bits & 63) as usize).copied();
        let digit = digit.filter(u8::is_ascii_alphanumeric);
        text.extend(digit.map(char::from));
    };
    for octet in digest {
        bits = bits << 8 | u32::from(octet);
        count += 8;
        while count >= 6 {
            count -= 6;
            push(bits >> count);
        }
    }
    if count > 0 {
        push(bits << (6 - count));
    }
    text
}

#[cfg(test)]
mod tests {
    use calico_model::is_resource_name;

    use super::*;

    #[test]
    fn long_names_are_replaced_by_digests() {
        let longest = "x".repeat(241);
        let stored = prefixed(POLICY_PREFIX, &longest);
        assert_eq!(stored, format!("knp.default.{longest}"));
        let names = ["x", "y"].map(|last| prefixed(POLICY_PREFIX, &format!("{longest}{last}")));
        assert_ne!(names[0], names[1]);
        for name in &names {
            assert!(is_resource_name(name), "{name}");
            assert!(name.starts_with("knp.default-sha256."));
            assert!(is_owned(POLICY_PREFIX, name) && !is_owned(ADMIN_PREFIX, name));
        }
        assert!(is_owned(POLICY_PREFIX, &stored));
        assert!(!is_owned(POLICY_PREFIX, "knp.other.x"));
    }

    #[test]
    fn host_endpoint_of_a_long_node_name_has_a_digest() {
        assert_eq!(host_endpoint_name("n1"), "n1-auto-hep");
        let longest = "x".repeat(NAME_OCTETS_MAX - HOST_ENDPOINT_SUFFIX.len());
        assert_eq!(host_endpoint_name(&longest).len(), NAME_OCTETS_MAX);
        let names = ["x", "y"].map(|last| host_endpoint_name(&format!("{longest}{last}")));
        assert_ne!(names[0], names[1]);
        for name in &names {
            assert!(is_resource_name(name) && name.len() < 60, "{name}");
            assert!(name.ends_with(HOST_ENDPOINT_SUFFIX));
        }
    }

    #[test]
    fn profiles_are_named_as_calico_names_them() {
        assert_eq!(namespace_profile("prod"), "kns.prod");
        assert_eq!(account_profile("prod", "web"), "ksa.prod.web");
        assert_eq!(account_profile("", "web"), "ksa.default.web");
        let long = account_profile("prod", &"x".repeat(253));
        assert!(is_resource_name(&long) && is_owned(ACCOUNT_PREFIX, &long));
    }
}
