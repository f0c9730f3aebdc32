//! The values outside policies that their chains depend on: settings, and which services exist.

use std::collections::BTreeSet;
use std::sync::Arc;

use calico_model::{EndpointSlice, ServiceName, SliceKey};

use super::calculator::Calculator;
use super::policy::{News, Policy, Slice};
use super::profile::Profile;
use super::types::{ListName, Problem};
use crate::limits::SLICE_MEMBERS_MAX;
use crate::render::{Context, PacketLog};

impl Calculator {
    /// Sets the packet log to which rules report, while the flow log is on.
    pub(crate) fn set_flows(&mut self, log: Option<PacketLog>) {
        self.news.settings |= self.flows != log;
        self.flows = log;
        self.index.locate(log.is_some());
    }

    /// Returns whether the settings enable the flow log, also those that are not recomputed yet.
    pub(crate) fn wants_flow_log(&self) -> bool {
        match self.news.settings {
            true => self.settings().flow_log,
            false => self.desired.settings.flow_log,
        }
    }

    /// Returns the context of rules.
    pub(super) fn context(&self) -> Context {
        Context {
            log: self.desired.settings.log.clone(),
            denial: self.desired.settings.denial,
            flows: self.desired.flows,
            services: Arc::clone(&self.services),
        }
    }

    /// Records a part of a service's endpoints. Invalid addresses and ports are left out. While a
    /// value that cannot be read is the only one, the rules with this service are closed.
    pub(super) fn slice(&mut self, key: &str, value: Option<&[u8]>) -> Result<(), Problem> {
        let slice_key: SliceKey = match key.parse::<SliceKey>() {
            Ok(slice_key) => slice_key,
            Err(_) if value.is_none() => return Ok(()),
            Err(error) => return Err(Problem::new(key, "", error.to_string())),
        };
        let mut problem = None;
        let slice = match value {
            None => News::Deleted,
            Some(octets) => match EndpointSlice::parse(octets) {
                Ok(read) => {
                    let (addresses, bad_address) = read.addresses();
                    let (ports, bad_port) = read.ports();
                    problem = bad_address.or(bad_port).map(|(field, reason)| {
                        Problem::new(key, field, format!("{reason}; the other members count"))
                    });
                    let members = addresses.len().saturating_mul(ports.len().max(1));
                    if members > SLICE_MEMBERS_MAX {
                        let reason = format!("{members} members; at most {SLICE_MEMBERS_MAX}");
                        problem = Some(Problem::new(key, "endpoints", reason));
                        News::Invalid
                    } else {
                        News::Valid(Slice { addresses, ports })
                    }
                }
                Err(error) => {
                    problem = Some(Problem::new(key, error.field, error.source.to_string()));
                    News::Invalid
                }
            },
        };
        let service = &slice_key.service;
        if self.index.put_slice(service, &slice_key.slice, slice) {
            let known = Arc::make_mut(&mut self.services);
            if !known.remove(service) {
                known.insert(service.clone());
            }
            if self.users_of_services.contains_key(service) {
                self.news.services.insert(service.clone());
            }
        }
        problem.map_or(Ok(()), Err)
    }

    /// Records the services that a policy or profile names.
    pub(super) fn put_services(
        &mut self,
        list: &ListName,
        old: &BTreeSet<ServiceName>,
        new: &BTreeSet<ServiceName>,
    ) {
        for service in new.difference(old) {
            let users = self.users_of_services.entry(service.clone()).or_default();
            users.insert(list.clone());
        }
        for service in old.difference(new) {
            let Some(users) = self.users_of_services.get_mut(service) else {
                continue;
            };
            users.remove(list);
            if users.is_empty() {
                self.users_of_services.remove(service);
            }
        }
    }

    /// Compiles the rules again that name one of these services.
    pub(super) fn recompile_users_of(&mut self, services: &BTreeSet<ServiceName>) {
        let users = services
            .iter()
            .filter_map(|service| self.users_of_services.get(service));
        let lists: BTreeSet<ListName> = users.flatten().cloned().collect();
        self.recompile(lists);
    }

    /// Compiles all rules again that depend on the context.
    pub(super) fn recompile_all(&mut self) {
        let policies = self.policies.keys().cloned().map(ListName::Policy);
        let profiles = self.profiles.keys().cloned().map(ListName::Profile);
        self.recompile(policies.chain(profiles).collect());
    }

    fn recompile(&mut self, lists: BTreeSet<ListName>) {
        let context = self.context();
        for list in lists {
            match list {
                ListName::Policy(key) => {
                    let policy = self.policies.get(&key).cloned();
                    let policy = policy.map(|policy| Policy::within(policy, &context));
                    self.put_policy(&key, policy);
                }
                ListName::Profile(name) => {
                    let profile = self.profiles.get(&name).cloned();
                    let profile = profile.map(|profile| Profile::within(profile, &context));
                    self.put_profile(&name, profile);
                }
            }
        }
    }
}
