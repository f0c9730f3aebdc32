//! The rights that the shipped manifests grant, and whether the API server grants them.

use std::path::Path;

use anyhow::{Context, Result};
use calico_manifests::{Document, documents};
use kube_client::{Failure, Server};
use serde_json::{Value, json};

/// The shipped file.
const SHIPPED: &str = include_str!("../../../packaging/kubernetes/rbac.yaml");

/// The path of reviews of the client's own rights.
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// A program with rights of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Part {
    /// The controller (cambric-kube)
    Controller,
    /// The start of a node (cambric node start)
    Node,
    /// The CNI plugin
    Cni,
}

impl Part {
    /// Returns the name of its service account and roles.
    pub(super) const fn account(self) -> &'static str {
        match self {
            Self::Controller => "cambric-kube",
            Self::Node => "calico-node",
            Self::Cni => "calico-cni-plugin",
        }
    }
}

/// A right, in the form of a review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Right(Value);

impl Right {
    /// Returns the right in words.
    pub(super) fn text(&self) -> String {
        let text = |field: &str| self.0[field].as_str().unwrap_or_default();
        let mut words = format!("{} {}", text("verb"), text("resource"));
        if !text("subresource").is_empty() {
            words.push_str(&format!("/{}", text("subresource")));
        }
        for (field, word) in [("group", "of"), ("namespace", "in"), ("name", "named")] {
            if !text(field).is_empty() {
                words.push_str(&format!(" {word} {}", text(field)));
            }
        }
        words
    }

    /// Asks the server whether the client has the right.
    pub(super) async fn is_granted(&self, server: &mut Server) -> Result<bool, Failure> {
        let review = json!({"apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": self.0}});
        let answer = server.create(REVIEWS, &review).await?;
        Ok(answer["status"]["allowed"] == true)
    }
}

/// Returns the rights of a part.
pub(super) fn shipped(part: Part) -> Result<Vec<Right>> {
    let read = documents(Path::new("rbac.yaml"), SHIPPED);
    let read = read.map_err(|mistakes| anyhow::anyhow!("{mistakes}"))?;
    let mut rights = Vec::new();
    for document in read.iter().map(Document::value) {
        let namespace = match document["kind"].as_str() {
            Some("Role") => document["metadata"]["namespace"].as_str(),
            Some("ClusterRole") => None,
            _ => continue,
        };
        if document["metadata"]["name"] != part.account() {
            continue;
        }
        let rules = document["rules"].as_array().context("rules")?;
        rights.extend(rules.iter().flat_map(|rule| of_rule(rule, namespace)));
    }
    Ok(rights)
}

fn of_rule(rule: &Value, namespace: Option<&str>) -> Vec<Right> {
    let texts = |field: &str| -> Vec<String> {
        let list = rule[field].as_array().into_iter().flatten();
        list.filter_map(|text| text.as_str().map(str::to_owned))
            .collect()
    };
    let names = match texts("resourceNames") {
        names if names.is_empty() => vec![String::new()],
        names => names,
    };
    let mut rights = Vec::new();
    for group in texts("apiGroups") {
        for resource in texts("resources") {
            let (resource, subresource) = resource.split_once('/').unwrap_or((&resource, ""));
            for verb in texts("verbs") {
                for name in &names {
                    rights.push(Right(
                        json!({"verb": verb, "group": group, "resource": resource,
                        "subresource": subresource, "name": name,
                        "namespace": namespace.unwrap_or_default()}),
                    ));
                }
            }
        }
    }
    rights
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_those_of_the_shipped_manifests() {
        let words = |part: Part| {
            let rights = shipped(part).expect("rights");
            rights.iter().map(Right::text).collect::<Vec<_>>()
        };
        assert_eq!(
            words(Part::Cni),
            ["get pods", "get namespaces", "get nodes"]
        );
        let node = words(Part::Node);
        assert!(node.contains(&"patch nodes/status".to_owned()), "{node:?}");
        let token = "create serviceaccounts/token in kube-system named calico-cni-plugin";
        assert!(node.contains(&token.to_owned()), "{node:?}");
        let controller = words(Part::Controller);
        let policies = "watch networkpolicies of networking.k8s.io";
        assert!(controller.contains(&policies.to_owned()), "{controller:?}");
    }
}
