// A map of objects with strings, a part of it as JSON.
const m = new Map();
for (let i = 0; i < 400000; i++) m.set("k" + (i * 7919 % 100003), {i, s: "x".repeat(i % 50)});
console.log(m.size, JSON.stringify([...m].slice(0, 20000)).length);
