"""Prints a Rust library of generics, traits and closures; the same one each time."""

state = 12345


def pick(n):
    global state
    state = (state * 1103515245 + 12345) % 2**31
    return state // 65536 % n


print("use std::collections::{BTreeMap, HashMap};\npub trait Shape { fn area(&self) -> u64; fn name(&self) -> String { String::new() } }")
for t in range(60):
    fields = [f"f{i}: {['u64', 'Vec<u64>', 'String', 'HashMap<u64, String>', 'Option<Box<u64>>'][pick(5)]}" for i in range(2 + pick(6))]
    print(f"#[derive(Debug, Clone, Default, PartialEq)]\npub struct T{t} {{ id: u64, {', '.join(fields)} }}")
    print(f"impl Shape for T{t} {{ fn area(&self) -> u64 {{ self.id.wrapping_mul({pick(9999)}) }} }}")
for f in range(260):
    t, u = pick(60), pick(60)
    print(f"pub fn f{f}<I: Iterator<Item = u64>>(items: I, by: &BTreeMap<u64, T{t}>) -> HashMap<u64, Vec<T{u}>> {{")
    print(f"    let mut out: HashMap<u64, Vec<T{u}>> = HashMap::new();")
    print(f"    for x in items.filter(|x| x % {2 + pick(9)} != 0).map(|x| x.wrapping_mul({pick(999)})) {{")
    print(f"        let a = by.get(&x).map_or({pick(99)}, Shape::area);")
    print(f"        out.entry(a % {3 + pick(50)}).or_default().push(T{u} {{ id: a ^ x, ..T{u}::default() }});")
    print(f"    }}\n    out.retain(|_, v| v.iter().any(|t| t.area() % {2 + pick(7)} != 0));\n    out\n}}")
print("pub fn all() -> u64 {\n    let mut s = 0;")
state = 12345
for f in range(260):
    print(f"    s ^= f{f}(0..{10 + f}, &BTreeMap::new()).len() as u64;")
print("    s\n}")
