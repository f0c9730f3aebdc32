//! The HTTP side of the server: one request, one answer or one stream of events.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use hyper::body::{Body as _, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, Response, StatusCode};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::Shared;
use super::discovery::discovery;
use super::http::{Answer, Query, is_in};
use super::objects::{ObjectKey, merge, merge_strategically};
use super::rbac::Wanted;
use super::resources::{ACCESS_REVIEWS, Resource, TOKEN, Target, of_kind};
use super::status::Rejected;
use super::watching::watch;

/// Octets of a request's body: the limit of a real server.
const REQUEST_OCTETS_MAX: usize = 3 * 1024 * 1024;

/// Answers a request.
pub(super) async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> Response<Answer> {
    let answered = match respond(&shared, request).await {
        Ok(response) => return response,
        Err(rejected) => rejected,
    };
    let mut response = whole(answered.code, &answered.status());
    if let Some(seconds) = answered.retry_after_s {
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn whole(code: u16, value: &impl Serialize) -> Response<Answer> {
    let body = serde_json::to_vec(value).unwrap_or_default();
    let mut response = Response::new(Answer::Whole(Some(body.into())));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or_default();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

async fn respond(
    shared: &Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Answer>, Rejected> {
    let path = request.uri().path().to_owned();
    let query = Query::new(request.uri().query().unwrap_or_default());
    let method = request.method().clone();
    let of_token = path.strip_suffix(TOKEN).and_then(Target::of);
    let of_token = of_token.filter(|target| target.resource.plural == "serviceaccounts");
    let target = Target::of(&path);
    let verb = match of_token.is_some() && method == Method::POST {
        true => "create",
        false => verb(&method, target.as_ref(), &query),
    };
    let wanted = match &of_token {
        Some(target) => Some(wanted(target, verb, "/token")),
        None => target.as_ref().map(|target| match target.is_status {
            true => wanted(target, verb, "/status"),
            false => wanted(target, verb, ""),
        }),
    };
    let plural = target.as_ref().map_or("", |target| target.resource.plural);
    let stalled = shared.admit(&request, verb, plural, wanted.as_ref())?;
    if stalled {
        // As a server that accepts requests and never answers them.
        std::future::pending::<()>().await;
    }
    if path == "/version" && method == Method::GET {
        return Ok(whole(200, &version()));
    }
    if let ("GET", Some(found)) = (method.as_str(), discovery(&path, |of| shared.has(of))) {
        return Ok(whole(200, &found));
    }
    if path == ACCESS_REVIEWS && method == Method::POST {
        let review = read(request).await?;
        return Ok(whole(201, &shared.review(review)));
    }
    if let Some(target) = &of_token {
        let request = read(request).await?;
        return shared
            .issue(target, request)
            .map(|token| whole(201, &token));
    }
    let target = target.filter(|target| shared.has(target.resource));
    let Some(target) = target else {
        return Ok(no_path(&path));
    };
    match (verb, &target.name) {
        ("watch", None) => watch(shared, &target, &query),
        ("list", None) => list(shared, &target, &query).map(|list| whole(200, &list)),
        ("get", Some(_)) => {
            let state = shared.state();
            let key = key(&target)?;
            let found = state.objects.get(&key);
            let missing = || Rejected::no_object(target.resource.plural, &key.2);
            found.map(|found| whole(200, found)).ok_or_else(missing)
        }
        ("create" | "update" | "patch" | "delete", _) => {
            write(shared, &target, verb, request).await
        }
        _ => {
            let message = "the server does not allow this method on the requested resource";
            Err(Rejected::new(405, "MethodNotAllowed", message))
        }
    }
}

/// Returns the right that a request needs.
fn wanted(target: &Target, verb: &str, subresource: &str) -> Wanted {
    let version = target.resource.version;
    Wanted {
        verb: verb.to_owned(),
        group: version
            .split_once('/')
            .map_or("", |(group, _)| group)
            .to_owned(),
        resource: format!("{}{subresource}", target.resource.plural),
        // A namespace is an object of the cluster.
        namespace: target.namespace.clone(),
        name: target.name.clone(),
    }
}

/// A path of an unknown group has an answer without the form of the API.
fn no_path(path: &str) -> Response<Answer> {
    let known = path.starts_with("/api/v1/") || path.starts_with("/apis/networking.k8s.io/v1/");
    if known {
        let rejected = Rejected::no_path();
        return whole(rejected.code, &rejected.status());
    }
    let text = Bytes::from_static(b"404 page not found\n");
    let mut response = Response::new(Answer::Whole(Some(text)));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

/// The answer of the recorded server.
fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "gitVersion": "v1.36.2", "compiler": "gc",
        "platform": "linux/amd64",
    })
}

fn verb(method: &Method, target: Option<&Target>, query: &Query) -> &'static str {
    let is_one = target.is_some_and(|target| target.name.is_some());
    match (method.as_str(), is_one) {
        ("GET", true) => "get",
        ("GET", false) if query.is_true("watch") => "watch",
        ("GET", false) => "list",
        ("POST", false) => "create",
        ("PUT", true) => "update",
        ("PATCH", true) => "patch",
        ("DELETE", true) => "delete",
        _ => "",
    }
}

/// Returns a list, or a page of one.
fn list(shared: &Shared, target: &Target, query: &Query) -> Result<List, Rejected> {
    let selector = query.selector()?;
    let limit = query.number("limit")?.unwrap_or(0);
    let (version, how) = (
        query.number("resourceVersion")?,
        query.text("resourceVersionMatch"),
    );
    let token = query.text("continue");
    let mut state = shared.state();
    if !token.is_empty() && std::mem::take(&mut state.expires_page) {
        return Err(Rejected::old_list());
    }
    let objects = &state.objects;
    let (revision, start) = match (token, how) {
        ("", "") | ("", "NotOlderThan") => {
            if how == "NotOlderThan" && version.is_none() {
                return Err(no_match());
            }
            if let Some(version) = version.filter(|version| *version > objects.revision) {
                let message = format!(
                    "Too large resource version: {version}, current: {}",
                    objects.revision
                );
                return Err(Rejected::new(504, "Timeout", message));
            }
            (objects.revision, None)
        }
        ("", "Exact") => match version {
            Some(version) if version < objects.listable_from => {
                let message = "The resourceVersion for the provided list is too old.";
                return Err(Rejected::new(410, "Expired", message));
            }
            Some(version) if version > 0 => (version, None),
            _ => return Err(no_match()),
        },
        ("", other) => {
            let message = format!("resourceVersionMatch: Unsupported value: \"{other}\"");
            return Err(Rejected::new(422, "Invalid", message));
        }
        (token, "") => {
            let invalid = || Rejected::bad_request("continue key is not valid");
            let (revision, start) = token_in(token).ok_or_else(invalid)?;
            if revision < objects.listable_from {
                return Err(Rejected::old_list());
            }
            (revision, Some(start))
        }
        (_, _) => {
            let message = "resourceVersionMatch is forbidden when continue is provided";
            return Err(Rejected::new(422, "Invalid", message));
        }
    };
    let all = objects.at(target.resource, revision).into_iter();
    let mut rest: Vec<(ObjectKey, Arc<Value>)> = all
        .filter(|(key, value)| is_in(target.namespace.as_ref(), key) && selector.matches(value))
        .filter(|(key, _)| start.as_ref().is_none_or(|start| place(key) > *start))
        .collect();
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if limit > 0 && rest.len() > limit {
        let further = rest.split_off(limit).len();
        if let Some((last, _)) = rest.last() {
            metadata["continue"] = json!(token_of(revision, last));
        }
        if selector.is_any() {
            metadata["remainingItemCount"] = json!(further);
        }
    }
    // Other requests are answered while a long page is made.
    drop(state);
    let is_custom = target.resource.is_custom;
    Ok(List {
        kind: format!("{}List", target.resource.kind),
        api_version: target.resource.version,
        metadata,
        items: rest
            .into_iter()
            .map(|(_, object)| Listed { object, is_custom })
            .collect(),
    })
}

/// The answer to a list. Its objects are not copied: in long lists, that would take most of the time.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct List {
    kind: String,
    api_version: &'static str,
    metadata: Value,
    items: Vec<Listed>,
}

/// An object of a list, which has its kind only if the resource is a custom one.
struct Listed {
    object: Arc<Value>,
    is_custom: bool,
}

impl Serialize for Listed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &*self.object {
            Value::Object(fields) if !self.is_custom => {
                let without_kind = |(name, _): &(&String, &Value)| {
                    !["kind", "apiVersion"].contains(&name.as_str())
                };
                serializer.collect_map(fields.iter().filter(without_kind))
            }
            object => object.serialize(serializer),
        }
    }
}

/// Completes a name that the client has begun.
fn generated(body: &mut Value, revision: u64) -> Option<String> {
    let beginning = body["metadata"]["generateName"].as_str()?;
    let name = format!("{beginning}{revision:05x}");
    body["metadata"]["name"] = json!(name);
    Some(name)
}

fn no_match() -> Rejected {
    let message = "resourceVersionMatch is forbidden unless resourceVersion is provided";
    Rejected::new(422, "Invalid", message)
}

fn place(key: &ObjectKey) -> (String, String) {
    (key.1.clone(), key.2.clone())
}

/// Returns the token of the next page. Clients must not read it.
fn token_of(revision: u64, last: &ObjectKey) -> String {
    let text = format!("{revision}/{}/{}", last.1, last.2);
    text.bytes().map(|octet| format!("{octet:02x}")).collect()
}

fn token_in(token: &str) -> Option<(u64, (String, String))> {
    let octets = token.as_bytes().chunks(2).map(|digits| {
        let digits = std::str::from_utf8(digits).ok()?;
        u8::from_str_radix(digits, 16).ok()
    });
    let octets: Option<Vec<u8>> = octets.collect();
    let text = String::from_utf8(octets?).ok()?;
    let mut parts = text.splitn(3, '/');
    let (revision, namespace, name) = (parts.next()?, parts.next()?, parts.next()?);
    let revision = revision.parse().ok()?;
    Some((revision, (namespace.to_owned(), name.to_owned())))
}

fn key(target: &Target) -> Result<ObjectKey, Rejected> {
    let name = target.name.clone().ok_or_else(Rejected::no_path)?;
    let namespace = target.namespace.clone().unwrap_or_default();
    Ok((target.resource, namespace, name))
}

async fn read(request: Request<Incoming>) -> Result<Value, Rejected> {
    let kind = request.headers().get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.contains("protobuf") || kind.contains("cbor") {
        let message = "the body of the request was in an unknown format";
        return Err(Rejected::new(415, "UnsupportedMediaType", message));
    }
    let mut body = request.into_body();
    let mut octets = Vec::new();
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let frame = frame.map_err(|error| Rejected::bad_request(error.to_string()))?;
        if let Ok(data) = frame.into_data() {
            octets.extend_from_slice(&data);
        }
        if octets.len() > REQUEST_OCTETS_MAX {
            let message = format!("Request entity too large: limit is {REQUEST_OCTETS_MAX}");
            return Err(Rejected::new(413, "RequestEntityTooLarge", message));
        }
    }
    if octets.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&octets).map_err(|error| Rejected::bad_request(error.to_string()))
}

async fn write(
    shared: &Shared,
    target: &Target,
    verb: &str,
    request: Request<Incoming>,
) -> Result<Response<Answer>, Rejected> {
    let kind = request.headers().get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().to_owned();
    let body = read(request).await?;
    let mut state = shared.state();
    let written = match verb {
        "create" => {
            let mut body = object(body)?;
            let name = match body["metadata"]["name"].as_str() {
                Some(name) => Some(name.to_owned()),
                None => generated(&mut body, state.objects.revision),
            };
            let target = Target {
                name,
                ..target.clone()
            };
            let key = key(&target).map_err(|_| {
                let message = "name or generateName is required";
                Rejected::new(422, "Invalid", message)
            })?;
            state.objects.create(&key, body)
        }
        "update" => {
            let key = key(target)?;
            state.objects.update(&key, object(body)?, target.is_status)
        }
        "patch" => {
            let key = key(target)?;
            let missing = || Rejected::no_object(target.resource.plural, &key.2);
            let mut patched = state.objects.get(&key).cloned().ok_or_else(missing)?;
            match kind.as_str() {
                "application/merge-patch+json" => merge(&mut patched, &body),
                "application/strategic-merge-patch+json" if !target.resource.is_custom => {
                    merge_strategically(&mut patched, &body);
                }
                _ => {
                    let message = "the body of the request was in an unknown format";
                    return Err(Rejected::new(415, "UnsupportedMediaType", message));
                }
            }
            state
                .objects
                .update(&key, object(patched)?, target.is_status)
        }
        _ => state.objects.delete(&key(target)?),
    };
    drop(state);
    shared.wake();
    let code = if verb == "create" { 201 } else { 200 };
    written.map(|object| whole(code, &object))
}

/// Returns the body if it has the form of an object.
pub(super) fn object(body: Value) -> Result<Value, Rejected> {
    let is_map = |value: &Value| value.is_object() || value.is_null();
    let fits = body["metadata"].is_object()
        && is_map(&body["metadata"]["labels"])
        && is_map(&body["spec"])
        && is_map(&body["status"]);
    match fits {
        true => Ok(body),
        false => Err(Rejected::bad_request(
            "json: cannot unmarshal into Go struct",
        )),
    }
}

impl Shared {
    /// Counts a request and decides whether it is answered. Returns whether it stalls.
    fn admit<B>(
        &self,
        request: &Request<B>,
        verb: &'static str,
        plural: &'static str,
        wanted: Option<&Wanted>,
    ) -> Result<bool, Rejected> {
        let mut state = self.state();
        *state.counts.entry((plural, verb)).or_default() += 1;
        if let Some(token) = &state.token {
            let given = request.headers().get(AUTHORIZATION);
            let given = given.and_then(|given| given.to_str().ok());
            if given != Some(&format!("Bearer {token}")) {
                return Err(Rejected::new(401, "Unauthorized", "Unauthorized"));
            }
        }
        if state.throttled > 0 {
            state.throttled -= 1;
            let message = "too many requests, please try again later";
            return Err(Rejected {
                retry_after_s: Some(1),
                ..Rejected::new(429, "TooManyRequests", message)
            });
        }
        let has_right = match (&state.rights, wanted) {
            (Some(rights), Some(wanted)) => rights.allow(wanted),
            _ => true,
        };
        if !has_right || state.denied.contains(&(verb.to_owned(), plural.to_owned())) {
            let message = format!(
                "{plural} is forbidden: User \"system:serviceaccount:kube-system:cambric-kube\" \
                 cannot {verb} resource \"{plural}\" at the cluster scope"
            );
            return Err(Rejected::new(403, "Forbidden", message));
        }
        Ok(state.stalled)
    }

    fn has(&self, resource: Resource) -> bool {
        !resource.is_custom || self.state().defined.contains(resource.kind)
    }

    /// Issues a token for a service account. Each one is different.
    fn issue(&self, target: &Target, mut request: Value) -> Result<Value, Rejected> {
        let key = key(target)?;
        let mut state = self.state();
        if state.objects.get(&key).is_none() {
            return Err(Rejected::no_object(target.resource.plural, &key.2));
        }
        state.tokens += 1;
        let token = format!("{}-{}-{}", key.1, key.2, state.tokens);
        request["status"] = json!({"token": token, "expirationTimestamp": null});
        Ok(request)
    }

    /// Answers whether the client has a right.
    fn review(&self, mut review: Value) -> Value {
        let attributes = &review["spec"]["resourceAttributes"];
        let text = |field: &str| attributes[field].as_str().unwrap_or_default().to_owned();
        let right = (text("verb"), text("resource"));
        let subresource = text("subresource");
        let optional = |field: &str| Some(text(field)).filter(|text| !text.is_empty());
        let wanted = Wanted {
            verb: right.0.clone(),
            group: text("group"),
            resource: match subresource.is_empty() {
                true => right.1.clone(),
                false => format!("{}/{subresource}", right.1),
            },
            namespace: optional("namespace"),
            name: optional("name"),
        };
        let state = self.state();
        let is_granted = state
            .rights
            .as_ref()
            .is_none_or(|rights| rights.allow(&wanted));
        let allowed = is_granted && !state.denied.contains(&right);
        drop(state);
        review["status"] = json!({"allowed": allowed});
        review
    }
}

/// Returns the key of an object from its own fields.
pub(super) fn key_of(object: &Value) -> Option<ObjectKey> {
    let resource = of_kind(object["kind"].as_str()?)?;
    let text = |field: &str| object["metadata"][field].as_str().map(str::to_owned);
    let namespace = match resource.is_namespaced {
        true => text("namespace")?,
        false => String::new(),
    };
    Some((resource, namespace, text("name")?))
}
