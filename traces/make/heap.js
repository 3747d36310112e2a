// Objects by the hundred thousand, made, kept for a while, written as JSON and read again.
let state = 7;
const pick = n => (state = (Math.imul(state, 1103515245) + 12345) >>> 0, (state >>> 8) % n);
let kept = [];
for (let round = 0; round < 8; round++) {
  const made = [];
  for (let i = 0; i < 60000; i++)
    made.push({ id: pick(1e9), name: 'n' + pick(1e6), tags: [pick(9), pick(99), pick(999)], at: { x: pick(1e4) / 7, y: i } });
  const text = JSON.stringify(made);
  const again = JSON.parse(text).filter(o => o.tags[0] % 3 == 0);
  kept = kept.filter((_, i) => i % 2 == 0).concat(again);
  console.log(round, text.length, kept.length);
}
