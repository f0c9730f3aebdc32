//! Public items of a crate's source, a line each.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{
    Attribute, Field, Fields, ImplItem, Item, ItemEnum, ItemImpl, ItemMacro, ItemMod, ItemStruct,
    ItemTrait, Meta, TraitItem, Type, UseTree, Visibility,
};

use super::expand::Rules;

/// The public items of a crate.
#[derive(Debug, Default)]
pub(super) struct Items {
    /// A line for each item, field and variant.
    pub(super) lines: BTreeSet<String>,
    /// Enums, and structs whose fields all have names and are public, without `#[non_exhaustive]`.
    pub(super) exhaustive: BTreeSet<String>,
}

/// Returns the items of a crate with this `lib.rs`.
pub(super) fn of_crate(lib: &Path) -> Result<Items> {
    let directory = lib.parent().unwrap_or(lib).to_owned();
    // The first time for the macros, which may be defined after the file that uses them.
    let mut first = List::default();
    first.file(lib, &directory, "")?;
    let mut list = List {
        macros: Some(first.defined),
        ..List::default()
    };
    list.file(lib, &directory, "")?;
    Ok(list.items_of_types())
}

#[derive(Default)]
struct List {
    lines: BTreeSet<String>,
    /// Lines about types, with the type's name.
    impls: Vec<(String, String)>,
    /// Public types.
    types: BTreeSet<String>,
    exhaustive: BTreeSet<String>,
    /// Macros that the crate defines.
    defined: BTreeMap<String, Rules>,
    /// All macros of the crate; `None` while they are collected.
    macros: Option<BTreeMap<String, Rules>>,
}

impl List {
    /// Adds the lines about public types.
    fn items_of_types(self) -> Items {
        let Self {
            mut lines,
            impls,
            types,
            exhaustive,
            ..
        } = self;
        let of_types = impls.into_iter().filter(|(name, _)| types.contains(name));
        lines.extend(of_types.map(|(_, line)| line));
        Items { lines, exhaustive }
    }

    fn file(&mut self, path: &Path, directory: &Path, place: &str) -> Result<()> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let file = syn::parse_file(&text).with_context(|| path.display().to_string())?;
        self.items(&file.items, directory, place)
    }

    fn items(&mut self, items: &[Item], directory: &Path, place: &str) -> Result<()> {
        for item in items {
            match item {
                Item::Mod(module) => self.module(module, directory, place)?,
                Item::Impl(block) => self.block(block),
                Item::Macro(item) => self.macro_item(item, directory, place)?,
                other => self.item(other, place),
            }
        }
        Ok(())
    }

    /// A module: what is public in a private one is exported elsewhere, under its own name.
    fn module(&mut self, module: &ItemMod, directory: &Path, place: &str) -> Result<()> {
        let Some(condition) = condition(&module.attrs) else {
            return Ok(());
        };
        let name = module.ident.to_string();
        let mut inner = place.to_owned();
        if is_public(&module.vis) {
            inner = format!("{place}{name}::");
            self.line(place, &format!("mod {name}"), &condition);
        }
        let below = directory.join(&name);
        match &module.content {
            Some((_, items)) => self.items(items, &below, &inner),
            None => {
                let beside: PathBuf = directory.join(format!("{name}.rs"));
                let path = if beside.exists() {
                    beside
                } else {
                    below.join("mod.rs")
                };
                self.file(&path, &below, &inner)
            }
        }
    }

    /// A definition, or the items that an invocation makes. A macro of another crate is listed as its
    /// tokens.
    fn macro_item(&mut self, item: &ItemMacro, directory: &Path, place: &str) -> Result<()> {
        let Some(condition) = condition(&item.attrs) else {
            return Ok(());
        };
        if let Some(name) = &item.ident {
            let rules = Rules::read(item.mac.tokens.clone());
            let rules = rules.with_context(|| format!("macro {name}"))?;
            self.defined.insert(name.to_string(), rules);
            return Ok(());
        }
        let Some(macros) = &self.macros else {
            return Ok(());
        };
        let name = item
            .mac
            .path
            .segments
            .last()
            .map(|last| last.ident.to_string());
        if let Some(rules) = name.as_ref().and_then(|name| macros.get(name)) {
            let made = rules.items(&item.mac.tokens);
            let made = made.with_context(|| format!("{}!", shown(&item.mac.path)))?;
            return self.items(&made, directory, place);
        }
        let made = without_documents(item.mac.tokens.clone()).to_string();
        for part in made.split(" , ").flat_map(|part| part.split(" ; ")) {
            let text = format!("{}! {}", shown(&item.mac.path), tidied(part));
            self.line(place, &text, &condition);
        }
        Ok(())
    }

    fn line(&mut self, place: &str, text: &str, condition: &str) {
        self.lines.insert(format!("{place}{text}{condition}"));
    }

    fn item(&mut self, item: &Item, place: &str) {
        let (attributes, visibility) = match item {
            Item::Const(item) => (&item.attrs, &item.vis),
            Item::Static(item) => (&item.attrs, &item.vis),
            Item::Fn(item) => (&item.attrs, &item.vis),
            Item::Struct(item) => (&item.attrs, &item.vis),
            Item::Enum(item) => (&item.attrs, &item.vis),
            Item::Trait(item) => (&item.attrs, &item.vis),
            Item::Type(item) => (&item.attrs, &item.vis),
            Item::Use(item) => (&item.attrs, &item.vis),
            _ => return,
        };
        let Some(condition) = condition(attributes) else {
            return;
        };
        if !is_public(visibility) {
            return;
        }
        match item {
            Item::Const(item) => {
                let text = format!("const {}: {}", item.ident, shown(&item.ty));
                self.line(place, &text, &condition);
            }
            Item::Static(item) => {
                let text = format!("static {}: {}", item.ident, shown(&item.ty));
                self.line(place, &text, &condition);
            }
            Item::Fn(item) => self.line(place, &shown(&item.sig), &condition),
            Item::Struct(item) => self.structure(item, place, &condition),
            Item::Enum(item) => self.enumeration(item, place, &condition),
            Item::Trait(item) => self.contract(item, place, &condition),
            Item::Type(item) => {
                let text = format!("type {} = {}", item.ident, shown(&item.ty));
                self.line(place, &text, &condition);
            }
            Item::Use(item) => self.uses(&item.tree, "", place, &condition),
            _ => {}
        }
    }

    fn named(&mut self, name: &str, attributes: &[Attribute]) -> &'static str {
        self.types.insert(name.to_owned());
        for attribute in attributes.iter().filter(|a| a.path().is_ident("derive")) {
            if let Meta::List(list) = &attribute.meta {
                let traits = list.tokens.to_string();
                let traits = traits
                    .split(',')
                    .map(str::trim)
                    .filter(|name| !name.is_empty());
                let lines = traits.map(|one| format!("impl {} for {name}", tidied(one)));
                self.lines.extend(lines);
            }
        }
        match attributes
            .iter()
            .any(|a| a.path().is_ident("non_exhaustive"))
        {
            true => "non_exhaustive ",
            false => "",
        }
    }

    fn structure(&mut self, item: &ItemStruct, place: &str, condition: &str) {
        let name = item.ident.to_string();
        let open = self.named(&name, &item.attrs);
        let text = format!("{open}struct {name}{}", shown(&item.generics));
        self.line(place, &text, condition);
        let mut is_closed = false;
        for (at, field) in item.fields.iter().enumerate() {
            match is_public(&field.vis) {
                true => self.line(
                    place,
                    &format!("{name}.{}", field_text(at, field)),
                    condition,
                ),
                false => is_closed = true,
            }
        }
        if is_closed {
            self.line(place, &format!("{name} has private fields"), condition);
        } else if open.is_empty() && matches!(&item.fields, Fields::Named(_)) {
            self.exhaustive.insert(format!("{place}{name}"));
        }
    }

    fn enumeration(&mut self, item: &ItemEnum, place: &str, condition: &str) {
        let name = item.ident.to_string();
        let open = self.named(&name, &item.attrs);
        let text = format!("{open}enum {name}{}", shown(&item.generics));
        self.line(place, &text, condition);
        if open.is_empty() {
            self.exhaustive.insert(format!("{place}{name}"));
        }
        for variant in &item.variants {
            let fields = variant.fields.iter().enumerate();
            let fields: Vec<String> = fields.map(|(at, field)| field_text(at, field)).collect();
            let fields = match (&variant.fields, fields.join(", ")) {
                (Fields::Unit, _) => String::new(),
                (_, fields) => format!(" {{ {fields} }}"),
            };
            self.line(
                place,
                &format!("{name}::{}{fields}", variant.ident),
                condition,
            );
        }
    }

    fn contract(&mut self, item: &ItemTrait, place: &str, condition: &str) {
        let name = item.ident.to_string();
        self.types.insert(name.clone());
        let above = shown(&item.supertraits);
        let text = format!("trait {name}{}: {above}", shown(&item.generics));
        self.line(place, &text, condition);
        for item in &item.items {
            let text = match item {
                TraitItem::Fn(function) if function.default.is_some() => {
                    format!("{} {{ .. }}", shown(&function.sig))
                }
                TraitItem::Fn(function) => shown(&function.sig),
                TraitItem::Const(constant) => {
                    format!("const {}: {}", constant.ident, shown(&constant.ty))
                }
                TraitItem::Type(kind) => format!("type {}", kind.ident),
                _ => continue,
            };
            self.line(place, &format!("{name}::{text}"), condition);
        }
    }

    fn block(&mut self, block: &ItemImpl) {
        let Some(condition) = condition(&block.attrs) else {
            return;
        };
        let name = type_name(&block.self_ty);
        if let Some((_, contract, _)) = &block.trait_ {
            let (generics, of) = (shown(&block.generics), shown(&block.self_ty));
            let text = format!("impl{generics} {} for {of}{condition}", shown(contract));
            self.impls.push((name, text));
            return;
        }
        for item in &block.items {
            let (attributes, visibility, text) = match item {
                ImplItem::Fn(item) => (&item.attrs, &item.vis, shown(&item.sig)),
                ImplItem::Const(item) => {
                    let text = format!("const {}: {}", item.ident, shown(&item.ty));
                    (&item.attrs, &item.vis, text)
                }
                _ => continue,
            };
            if let (true, Some(own)) = (is_public(visibility), self::condition(attributes)) {
                let text = format!("{name}::{text}{condition}{own}");
                self.impls.push((name.clone(), text));
            }
        }
    }

    /// One line for each name that is exported.
    fn uses(&mut self, tree: &UseTree, before: &str, place: &str, condition: &str) {
        match tree {
            UseTree::Path(path) => {
                let before = format!("{before}{}::", path.ident);
                self.uses(&path.tree, &before, place, condition);
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.uses(tree, before, place, condition);
                }
            }
            // Where in the crate an item comes from is not seen outside.
            UseTree::Name(name) => self.line(place, &format!("use {}", name.ident), condition),
            UseTree::Rename(name) => {
                let text = format!("use {before}{} as {}", name.ident, name.rename);
                self.line(place, &text, condition);
            }
            UseTree::Glob(_) => self.line(place, &format!("use {before}*"), condition),
        }
    }
}

const fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// The feature that an item needs, as its line ends; `None` for what only tests have.
fn condition(attributes: &[Attribute]) -> Option<String> {
    let conditions = attributes.iter().filter(|a| a.path().is_ident("cfg"));
    let mut text = String::new();
    for condition in conditions {
        let Meta::List(list) = &condition.meta else {
            continue;
        };
        let inner = tidied(&list.tokens.to_string());
        if inner == "test" || inner == "doctest" {
            return None;
        }
        text += &format!(" [{inner}]");
    }
    Some(text)
}

fn field_text(at: usize, field: &Field) -> String {
    let name = field.ident.as_ref();
    let name = name.map_or_else(|| at.to_string(), ToString::to_string);
    format!("{name}: {}", shown(&field.ty))
}

fn type_name(of: &Type) -> String {
    match of {
        Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
        Type::Reference(reference) => Some(type_name(&reference.elem)),
        _ => None,
    }
    .unwrap_or_default()
}

/// Takes documentation out of the tokens that a macro is given.
fn without_documents(tokens: TokenStream) -> TokenStream {
    let mut out = Vec::new();
    for token in tokens {
        match &token {
            TokenTree::Group(group) if is_document(group) => {
                out.pop(); // the `#` before it
            }
            TokenTree::Group(group) => {
                let inner = without_documents(group.stream());
                out.push(proc_macro2::Group::new(group.delimiter(), inner).into());
            }
            _ => out.push(token),
        }
    }
    out.into_iter().collect()
}

fn is_document(group: &proc_macro2::Group) -> bool {
    let first = group.stream().into_iter().next();
    first.is_some_and(|first| first.to_string() == "doc")
}

fn shown(tokens: &impl ToTokens) -> String {
    tidied(&tokens.to_token_stream().to_string())
}

/// Takes out most of the spaces that tokens are printed with.
fn tidied(text: &str) -> String {
    let mut text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for (from, to) in [
        (" :: ", "::"),
        (":: ", "::"),
        (" ::", "::"),
        (" < ", "<"),
        ("< ", "<"),
        (" <", "<"),
        (" >", ">"),
        (" : ", ": "),
        (" ,", ","),
        (" ;", ";"),
        ("& ", "&"),
        (" (", "("),
        ("( ", "("),
        (" )", ")"),
        ("->", " -> "),
    ] {
        text = text.replace(from, to);
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(source: &str) -> Items {
        let file = syn::parse_file(source).expect("Rust");
        let mut list = List::default();
        let here = Path::new(".");
        list.items(&file.items, here, "").expect("items");
        list.macros = Some(std::mem::take(&mut list.defined));
        list.items(&file.items, here, "").expect("items");
        list.items_of_types()
    }

    fn lines(source: &str) -> Vec<String> {
        items(source).lines.into_iter().collect()
    }

    #[test]
    fn open_types_and_values_are_not_exhaustive() {
        let found = items(
            "
            #[non_exhaustive] pub enum Open { One }
            pub enum Closed { One }
            #[non_exhaustive] pub struct OpenStruct { pub x: u8 }
            pub struct Point { pub x: u8, pub y: u8 }
            pub struct Private { pub x: u8, y: u8 }
            pub struct Number(pub u8);
            pub struct Unit;
            struct Inner { pub x: u8 }
            pub mod inner { pub enum Kind {} }
            ",
        );
        let found: Vec<_> = found.exhaustive.into_iter().collect();
        assert_eq!(found, ["Closed", "Point", "inner::Kind"]);
    }

    #[test]
    fn items_are_listed_as_programs_outside_see_them() {
        let source = "
            #[derive(Clone)] #[non_exhaustive] pub enum Kind { One, Two(u8), Three { at: u16 } }
            pub struct Point { pub x: u8, y: u8 }
            impl Point {
                /// Returns it.
                pub const fn of(x: &'static [u8]) -> Option<Self> { None }
                fn hidden(&self) {}
            }
            impl From<u8> for Point { fn from(x: u8) -> Self { todo() } }
            struct Private;
            impl Clone for Private { fn clone(&self) -> Self { Private } }
            pub mod inner { pub const MAX: usize = 3; pub(crate) fn not() {} }
            mod hidden { pub fn shown() {} }
            pub use hidden::{shown, other as renamed};
            #[cfg(test)] pub fn only_tests() {}
            #[cfg(feature = \"std\")] pub fn with_std() {}
        ";
        let expected = [
            "Kind::One",
            "Kind::Three { at: u16 }",
            "Kind::Two { 0: u8 }",
            "Point has private fields",
            "Point.x: u8",
            "Point::const fn of(x: &'static [u8]) -> Option<Self>",
            "fn shown()",
            "fn with_std() [feature = \"std\"]",
            "impl Clone for Kind",
            "impl From<u8> for Point",
            "inner::const MAX: usize",
            "mod inner",
            "non_exhaustive enum Kind",
            "struct Point",
            "use hidden::other as renamed",
            "use shown",
        ];
        assert_eq!(lines(source), expected);
    }

    #[test]
    fn macro_is_listed_without_its_documentation() {
        let one = lines("wire! { /// One.\n pub struct Code(u8) { /// A.\n A = 1, B = 2 } }");
        let other = lines("wire! { pub struct Code(u8) { A = 1, /** Two. */ B = 2 } }");
        assert_eq!(one, other);
        assert_eq!(one, ["wire! B = 2 }", "wire! pub struct Code(u8) { A = 1"]);
    }

    #[test]
    fn items_of_own_macro_are_listed_as_others() {
        let source = "
            macro_rules! kinds {
                ($(#[$meta:meta])* $name:ident: $($(#[$doc:meta])* $kind:ident = $number:literal,)+
                 fields $($field:ident $(as $as:ident)?: $type:ty),* $(,)?) => {
                    $(#[$meta])* pub enum $name { $($(#[$doc])* $kind,)+ }
                    impl $name { pub const ALL: [Self; 2] = [$(Self::$kind),+]; }
                    pub struct Fields { $($(pub $as: u8,)? pub $field: $type,)* }
                };
            }
            kinds! {
                /// Kinds.
                #[non_exhaustive]
                Kind: /// The first one.
                One = 1, Two = 2, fields a: Vec<u8>, b as c: Option<u16>,
            }
        ";
        let expected = [
            "Fields.a: Vec<u8>",
            "Fields.b: Option<u16>",
            "Fields.c: u8",
            "Kind::One",
            "Kind::Two",
            "Kind::const ALL: [Self; 2]",
            "non_exhaustive enum Kind",
            "struct Fields",
        ];
        assert_eq!(lines(source), expected);
        assert!(items(source).exhaustive.contains("Fields"));
    }
}
