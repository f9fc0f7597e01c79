import type { Check, CheckStatus } from '../lib/operator/doctor/check.ts';
import { type CommandContext, createStyle, hung, line, printable } from './output.ts';

const LABELS: Record<CheckStatus, string> = { ok: '[OK]', warn: '[WARN]', error: '[ERROR]' };
/** Column in which the identifiers of all checks begin, whatever the label. */
const MARGIN = 9;

/** Prints the verdicts of a doctor, with the fix below each problem, and how many problems there are. */
export function printChecks(checks: readonly Check[], context: CommandContext): void {
  const style = createStyle(context.stdout, context.env);
  const paint = { ok: style.green, warn: style.yellow, error: style.red };
  const columns = context.stdout.isTTY ? context.stdout.columns : undefined;
  const body = (text: string) => hung(text, { indent: MARGIN + 1, columns });
  /** The first check that printed each fix. One cause may fail many checks. */
  const printed = new Map<string, string>();
  for (const { id, status, summary, next } of checks) {
    const label = LABELS[status];
    const [first, ...rest] = body(`${id}: ${printable(summary)}`);
    line(context.stdout, `${' '.repeat(MARGIN - label.length)}${paint[status](label)} ${first?.trimStart()}`);
    for (const text of rest) line(context.stdout, text);
    if (next === undefined) continue;
    const before = printed.get(next);
    for (const text of body(`Fix: ${before === undefined ? printable(next) : `as for ${before}`}`)) {
      line(context.stdout, text);
    }
    if (before === undefined) printed.set(next, id);
  }
  line(context.stdout);
  line(context.stdout, conclusion(checks, style));
}

function conclusion(checks: readonly Check[], { green, yellow, red }: ReturnType<typeof createStyle>): string {
  const count = (status: CheckStatus) => checks.filter((check) => check.status === status).length;
  const parts = [
    ...(count('error') > 0 ? [red(amount(count('error'), 'error'))] : []),
    ...(count('warn') > 0 ? [yellow(amount(count('warn'), 'warning'))] : []),
  ];
  return parts.length === 0 ? green(`All ${checks.length} checks are fine.`) : `${parts.join(', ')}.`;
}

const amount = (count: number, what: string): string => `${count} ${what}${count === 1 ? '' : 's'}`;
