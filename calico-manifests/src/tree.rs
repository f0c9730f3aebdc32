//! A document with the place of every value in it.

use std::ops::Range;

use serde_json::{Map, Value};

/// A part of the text, in octets.
pub(super) type Place = Range<usize>;

/// A value and its place.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    pub(super) place: Place,
    pub(super) shape: Shape,
}

#[derive(Debug, Clone)]
pub(super) enum Shape {
    Scalar(Value),
    /// With the position of each item in the text, which stays when others are removed.
    List(Vec<(usize, Tree)>),
    Object(Vec<Field>),
}

/// A field of an object.
#[derive(Debug, Clone)]
pub(super) struct Field {
    pub(super) name: String,
    /// The place of its name.
    pub(super) place: Place,
    pub(super) value: Tree,
}

/// The value at a path, or the nearest existing one above it.
#[derive(Debug)]
pub(super) struct Found<'t> {
    tree: &'t Tree,
    /// The place of its name, unless it is an item of a list or the whole.
    name: Option<&'t Place>,
    /// The way to it, as positions.
    way: Vec<usize>,
    /// The path in the text.
    pub(super) path: String,
    /// Whether this is the value at the path itself.
    is_complete: bool,
}

impl Found<'_> {
    /// Returns the place of its name; for an item of a list, and the whole, of the value.
    pub(super) fn name(&self) -> Place {
        self.name.map_or_else(|| self.tree.start(), Clone::clone)
    }

    /// Returns the place of the value, if it is one of a line; otherwise that of its name.
    pub(super) fn value(&self) -> Place {
        match &self.tree.shape {
            Shape::Scalar(_) if self.is_complete && !self.tree.place.is_empty() => {
                self.tree.place.clone()
            }
            _ => self.name(),
        }
    }
}

impl Tree {
    /// Returns the place at which it begins: of its first field or item, if it has some.
    pub(super) fn start(&self) -> Place {
        match &self.shape {
            Shape::Object(fields) => fields.first().map(|field| field.place.clone()),
            Shape::List(items) => items.first().map(|(_, item)| item.start()),
            Shape::Scalar(_) => None,
        }
        .unwrap_or_else(|| self.place.clone())
    }

    /// Returns whether it is empty, as between two separators.
    pub(super) const fn is_empty(&self) -> bool {
        matches!(self.shape, Shape::Scalar(Value::Null))
    }

    /// Returns whether it is an object.
    pub(super) const fn is_object(&self) -> bool {
        matches!(self.shape, Shape::Object(_))
    }

    /// Returns whether it is an object with the kind of a list.
    pub(super) fn is_list_of_resources(&self) -> bool {
        let Shape::Object(fields) = &self.shape else {
            return false;
        };
        fields.iter().any(|field| {
            let kind = match &field.value.shape {
                Shape::Scalar(Value::String(kind)) => kind.as_str(),
                _ => "",
            };
            field.name == "kind" && kind.ends_with("List")
        })
    }

    /// Returns its items, if it is a list; otherwise itself.
    pub(super) fn into_list(self) -> Result<Vec<Self>, Self> {
        match self.shape {
            Shape::List(items) => Ok(items.into_iter().map(|(_, item)| item).collect()),
            shape => Err(Self { shape, ..self }),
        }
    }

    /// Returns the items of an object's field, if that is a list.
    pub(super) fn items(self, name: &str) -> Vec<Self> {
        let Shape::Object(fields) = self.shape else {
            return Vec::new();
        };
        let field = fields.into_iter().find(|field| field.name == name);
        let items = field.map(|field| field.value.into_list());
        items.and_then(Result::ok).unwrap_or_default()
    }

    /// Returns the value with this path, such as `spec.bgp.asNumber`, `spec.nets[1]` or
    /// `metadata.labels[a.b/c]`, or the nearest existing one above it.
    pub(super) fn find(&self, path: &str) -> Found<'_> {
        let mut found = Found {
            tree: self,
            name: None,
            way: Vec::new(),
            path: String::new(),
            is_complete: true,
        };
        let mut rest = path;
        loop {
            rest = rest.strip_prefix('.').unwrap_or(rest);
            if rest.is_empty() {
                return found;
            }
            let Some((position, octets)) = found.tree.step(rest) else {
                break;
            };
            let (step, after) = rest.split_at(octets);
            match &found.tree.shape {
                Shape::List(items) => {
                    let Some((number, item)) = items.get(position) else {
                        break;
                    };
                    found.path.push_str(&format!("[{number}]"));
                    (found.tree, found.name) = (item, None);
                }
                Shape::Object(fields) => {
                    let Some(field) = fields.get(position) else {
                        break;
                    };
                    push_step(&mut found.path, step);
                    (found.tree, found.name) = (&field.value, Some(&field.place));
                }
                Shape::Scalar(_) => break,
            }
            found.way.push(position);
            rest = after;
        }
        push_step(&mut found.path, rest);
        found.is_complete = false;
        found
    }

    /// Returns the position of the child with which a path begins, and the length of its step.
    fn step(&self, path: &str) -> Option<(usize, usize)> {
        match &self.shape {
            Shape::List(items) => {
                let (position, _) = path.strip_prefix('[')?.split_once(']')?;
                let at = position.parse().ok().filter(|at| *at < items.len())?;
                Some((at, position.len() + 2))
            }
            Shape::Object(fields) => {
                let inner = path.strip_prefix('[');
                let fits = |field: &Field| {
                    let rest = inner.unwrap_or(path).strip_prefix(field.name.as_str());
                    rest.is_some_and(|rest| match inner {
                        Some(_) => rest.starts_with(']'),
                        None => rest.is_empty() || rest.starts_with(['.', '[']),
                    })
                };
                let fitting = fields.iter().enumerate().filter(|(_, field)| fits(field));
                // Names may have dots in them.
                let (at, field) = fitting.max_by_key(|(_, field)| field.name.len())?;
                let brackets = if inner.is_some() { 2 } else { 0 };
                Some((at, field.name.len() + brackets))
            }
            Shape::Scalar(_) => None,
        }
    }

    /// Removes the value with this path. Returns its path in the text; `None` if there is no such
    /// value, or if it is the whole.
    pub(super) fn remove(&mut self, path: &str) -> Option<String> {
        let found = self.find(path);
        if !found.is_complete {
            return None;
        }
        let (way, path) = (found.way, found.path);
        let (last, above) = way.split_last()?;
        let mut here = self;
        for position in above {
            here = match &mut here.shape {
                Shape::List(items) => &mut items.get_mut(*position)?.1,
                Shape::Object(fields) => &mut fields.get_mut(*position)?.value,
                Shape::Scalar(_) => return None,
            };
        }
        match &mut here.shape {
            Shape::List(items) => drop(items.remove(*last)),
            Shape::Object(fields) => drop(fields.remove(*last)),
            Shape::Scalar(_) => return None,
        }
        Some(path)
    }

    /// Returns the value without places.
    pub(super) fn value(&self) -> Value {
        match &self.shape {
            Shape::Scalar(value) => value.clone(),
            Shape::List(items) => items.iter().map(|(_, item)| item.value()).collect(),
            Shape::Object(fields) => {
                let fields = fields
                    .iter()
                    .map(|field| (field.name.clone(), field.value.value()));
                Value::Object(Map::from_iter(fields))
            }
        }
    }
}

fn push_step(path: &mut String, step: &str) {
    if !path.is_empty() && !step.starts_with('[') {
        path.push('.');
    }
    path.push_str(step);
}
