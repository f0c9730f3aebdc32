//! News of the API server.

use daemon_common::events::{Event, Text, emit};

use super::Controller;
use crate::kinds::Watched;
use crate::object::Object;
use crate::reader::News;
use crate::target::Target;

impl Controller {
    pub(super) fn take_news(&mut self, news: News) {
        match news {
            News::Listed {
                watched,
                revision,
                objects,
            } => {
                self.failures.remove(&watched);
                emit(Event::KubernetesListed {
                    kind: Text::new(watched),
                    objects: objects.len() as u64,
                    revision,
                });
                objects
                    .iter()
                    .for_each(|object| self.report_parts(watched, object));
                self.guard.listed(watched, revision);
                if watched == Watched::Service {
                    self.sweep(false);
                }
                let touched = self.objects.set_all(watched, objects);
                self.touch(watched, touched);
                // Also resources of objects that were deleted before the list.
                let owned = |key: &&Target| Watched::owner_of(key) == Some(watched);
                self.unchecked
                    .extend(self.stored.keys().filter(owned).cloned());
                self.look_at_identity(watched);
                self.new_lists.insert(watched);
                self.look_at_lists();
            }
            News::Changed {
                watched,
                revision,
                object,
            } => {
                self.failures.remove(&watched);
                self.guard.reached(watched, revision);
                self.report_parts(watched, &object);
                if let Some(earlier) = self.objects.get(watched, &object.id).cloned() {
                    self.unbalance(&earlier, Some(&object));
                }
                let touched = self.objects.set(watched, *object);
                self.touch(watched, touched);
                self.look_at_identity(watched);
            }
            News::Removed {
                watched,
                revision,
                object,
            } => {
                self.guard.reached(watched, revision);
                if watched == Watched::Node {
                    self.prove_node(&object.id);
                }
                self.unbalance(&object, None);
                let touched = self.objects.remove(watched, &object.id);
                self.proven.extend(touched.keys.iter().cloned());
                self.touch(watched, touched);
                self.look_at_identity(watched);
            }
            News::Watching { watched } => {
                self.failures.remove(&watched);
                self.followed.insert(watched);
            }
            News::Ended { watched } => {
                self.followed.remove(&watched);
            }
            News::Reached { watched, revision } => {
                self.failures.remove(&watched);
                self.guard.reached(watched, revision);
            }
            News::Missing { watched } => {
                self.failures.remove(&watched);
                self.objects.set_missing(watched);
            }
            News::Failed { watched, failure } => {
                if self.failures.get(&watched) != Some(&failure) {
                    emit(Event::KubernetesRequestFailed {
                        kind: Text::new(watched),
                        reason: Text::new(&failure),
                    });
                }
                self.failures.insert(watched, failure);
                self.followed.remove(&watched);
            }
        }
    }

    /// Emits the parts of an object that are not converted, unless they were emitted before.
    fn report_parts(&self, watched: Watched, object: &Object) {
        let earlier = self.objects.get(watched, &object.id);
        if earlier.is_some_and(|earlier| earlier.reports == object.reports) {
            return;
        }
        for report in &object.reports {
            emit(Event::KubernetesPartInvalid {
                object: Text::new(&report.object),
                field: Text::new(&report.field),
                reason: Text::new(&report.reason),
            });
        }
    }
}
