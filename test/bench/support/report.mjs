import { cpus } from 'node:os';

export const machine = () => ({
  node: process.version,
  cpu: cpus()[0]?.model.trim() ?? 'unknown',
  cores: cpus().length,
});

const WIDTHS = [56, 9, 9, 6, 8];
const line = (title, ...columns) =>
  [title.padEnd(WIDTHS[0]), ...columns.map((text, at) => text.padStart(WIDTHS[at + 1] ?? 0))].join('  ').trimEnd();

const digits = new Intl.NumberFormat('en', { maximumSignificantDigits: 4 });
const number = (value) => (value >= 1000 ? Math.round(value).toLocaleString('en') : digits.format(value));

export const formatHead = ({ node, cpu, cores }) =>
  `Node ${node}, ${cores} x ${cpu}\n\n${line('', 'relay', 'bare', 'ratio', 'bound', '')}`;

export function formatRow({ title, unit, relay, bare, ratio, least, most, ok }) {
  const bound = least === undefined ? `<= ${number(most)}` : `>= ${least.toFixed(2)}`;
  const verdict = ok ? 'ok' : least === undefined ? 'ABOVE' : 'BELOW';
  return line(`${title} (${unit})`, number(relay), number(bare), ratio.toFixed(2), bound, verdict);
}
