import { cpus, loadavg } from 'node:os';

/** Load average of the last minute. The bench itself adds about two. */
export const load = () => Math.round(loadavg()[0] * 100) / 100;

export const machine = () => ({
  node: process.version,
  cpu: cpus()[0]?.model.trim() ?? 'unknown',
  cores: cpus().length,
  load: load(),
});

const TITLE = 58;
const digits = new Intl.NumberFormat('en', { maximumSignificantDigits: 4 });

function number(value) {
  if (!Number.isFinite(value)) return '-';
  return value >= 1000 ? Math.round(value).toLocaleString('en') : digits.format(value);
}

const ratioText = (value) => (Number.isFinite(value) ? value.toFixed(2) : '-');

function line(title, { relay, bare, ratio, former, formerRatio, bound = '', verdict = '' }, withFormer) {
  const columns = [relay.padStart(9), bare.padStart(9), ratio.padStart(6)];
  if (withFormer) columns.push(former.padStart(9), formerRatio.padStart(6));
  return [title.padEnd(TITLE), ...columns, bound.padStart(8), verdict].join('  ').trimEnd();
}

export function formatHead({ node, cpu, cores, load }, withFormer) {
  const names = {
    relay: 'relay',
    bare: 'bare',
    ratio: 'ratio',
    former: 'former',
    formerRatio: 'ratio',
    bound: 'bound',
  };
  return `Node ${node}, ${cores} x ${cpu}, load ${load}\n\n${line('', names, withFormer)}`;
}

/** The line of a bench, and a second one for the CPU of its server. */
export function formatRow({ title, unit, minRatio, maxRatio, max, ok, operation, cpu, ...value }, withFormer) {
  const atMost = maxRatio === undefined ? number(max) : maxRatio.toFixed(2);
  const bound = minRatio === undefined ? `<= ${atMost}` : `>= ${minRatio.toFixed(2)}`;
  const verdict = ok ? 'ok' : minRatio === undefined ? 'ABOVE' : 'BELOW';
  const text = (row) => ({
    relay: number(row.relay),
    bare: number(row.bare),
    ratio: ratioText(row.ratio),
    former: number(row.former),
    formerRatio: ratioText(row.formerRatio),
  });
  const rows = [line(`${title} (${unit})`, { ...text(value), bound, verdict }, withFormer)];
  if (cpu) rows.push(line(`  server CPU (µs per ${operation})`, text(cpu), withFormer));
  return rows.join('\n');
}
