//! The authentication of a session, from the wish of its client.

use bfd::{AuthKey, AuthType, Authentication, Secret};
use bfd_client::Auth;

/// Converts the wish of a client.
///
/// # Errors
///
/// The type is not defined, a key is too long for it, or two keys have one number. The reason quotes no key.
pub(super) fn of(auth: &Auth) -> Result<Authentication, String> {
    let auth_type = AuthType::from_code(auth.kind);
    let auth_type =
        auth_type.ok_or_else(|| format!("no authentication has the type {}", auth.kind))?;
    let keys = auth.keys.iter().map(|key| {
        let secret = Secret::new(key.secret.as_bytes());
        let secret = secret.map_err(|error| format!("key {}: {error}", key.id))?;
        Ok(AuthKey::new(key.id, secret))
    });
    let keys: Vec<AuthKey> = keys.collect::<Result<_, String>>()?;
    Authentication::new(auth_type, &keys).map_err(|error| error.to_string())
}
