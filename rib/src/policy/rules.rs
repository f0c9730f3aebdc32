//! Rules: terms in order; the first deciding one ends the evaluation.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use bgp_proto::Attributes;

use super::{Edit, Evaluation, Match, RouteContext, Verdict};

/// A list of terms and the outcome for a route about which none of them decides.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct Rules {
    /// Its name, for operators. It is part of comparisons: rules that are to share an update group
    /// have a name that describes their effect, not their peer.
    pub name: String,
    /// The terms, in the order of evaluation.
    pub terms: Vec<Term>,
    /// The outcome for a route about which no term has decided.
    pub otherwise: Outcome,
}

impl Rules {
    /// Returns rules with their terms in order, and the outcome for a route that no term accepts or
    /// rejects.
    pub fn new(name: impl Into<String>, terms: Vec<Term>, otherwise: Outcome) -> Self {
        Self {
            name: name.into(),
            terms,
            otherwise,
        }
    }
}

/// One rule: its conditions, changes and verdict.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct Term {
    /// Its name, for operators: its place in the source of the rules.
    pub name: String,
    /// All of these have to hold; without any the term matches every route.
    pub when: Vec<Match>,
    /// The changes, in this order. Later terms see them.
    pub edit: Vec<Edit>,
    /// The verdict.
    pub then: Then,
}

impl Term {
    /// Returns a term: a route that matches all of `when` is changed by `edit`, then `then` applies.
    pub fn new(name: impl Into<String>, when: Vec<Match>, edit: Vec<Edit>, then: Then) -> Self {
        Self {
            name: name.into(),
            when,
            edit,
            then,
        }
    }
}

/// The verdict of a term on a matching route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Then {
    /// The route is accepted.
    Accept,
    /// The route is rejected.
    Reject,
    /// The next term is evaluated.
    Next,
}

/// The final outcome for a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// Accepted.
    Accept,
    /// Rejected.
    Reject,
}

impl Rules {
    /// Applies the rules; calls `on` for every matching term, in order. The last one decided,
    /// unless its verdict is [`Then::Next`].
    pub fn evaluate(&self, route: &RouteContext<'_>, on: &mut dyn FnMut(&Term)) -> Verdict {
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

    /// Evaluates the rules again, and returns the matching terms.
    pub(crate) fn explain(&self, route: &RouteContext<'_>) -> Evaluation {
        let mut terms = Vec::new();
        self.evaluate(route, &mut |term| terms.push(term.name.clone()));
        Evaluation {
            rules: self.name.clone(),
            terms,
        }
    }
}
