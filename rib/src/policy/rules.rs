//! Rules: terms in their order, the first that decides ends.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use bgp_proto::Attributes;

use super::{Edit, Match, RouteContext, Verdict};

/// A list of terms and what becomes of a route about which none of them decides.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rules {
    /// Its name, for people. It takes part in comparisons: rules that are to share an update group
    /// have a name that says what they do, not for whom.
    pub name: String,
    /// The terms, in the order in which they are tried.
    pub terms: Vec<Term>,
    /// What is said of a route about which no term has decided.
    pub otherwise: Outcome,
}

/// One rule: what it is about, what it changes, what it says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term {
    /// Its name, for people: where it stands in what it was made from.
    pub name: String,
    /// All of these have to hold; with none it is about every route.
    pub when: Vec<Match>,
    /// What it changes, in this order. Later terms see the change.
    pub edit: Vec<Edit>,
    /// What it says.
    pub then: Then,
}

/// What a term says of a route that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Then {
    /// The route passes.
    Accept,
    /// The route does not pass.
    Reject,
    /// The next term is tried.
    Next,
}

/// What is said of a route in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// It passes.
    Accept,
    /// It does not pass.
    Reject,
}

impl Rules {
    /// Applies the rules; `on` is told of every term that is about the route, in their order. The
    /// last of them is the one that decided, unless it says [`Then::Next`].
    pub fn judge(&self, route: &RouteContext<'_>, on: &mut dyn FnMut(&Term)) -> Verdict {
        let mut edited: Option<Box<Attributes>> = None;
        let mut outcome = self.otherwise;
        for term in &self.terms {
            let holds = |when: &Match| when.holds(route, edited.as_deref());
            if !term.when.iter().all(holds) {
                continue;
            }
            on(term);
            if !term.edit.is_empty() && term.then != Then::Reject {
                let attributes =
                    edited.get_or_insert_with(|| Box::new((**route.attributes).clone()));
                term.edit.iter().for_each(|edit| edit.apply(attributes));
            }
            outcome = match term.then {
                Then::Next => continue,
                Then::Accept => Outcome::Accept,
                Then::Reject => Outcome::Reject,
            };
            break;
        }
        match (outcome, edited) {
            (Outcome::Reject, _) => Verdict::Reject,
            (Outcome::Accept, None) => Verdict::Accept,
            (Outcome::Accept, Some(edited)) => Verdict::AcceptWith(edited),
        }
    }
}
