import type { Check, CheckStatus } from '../lib/operator/doctor/check.ts';
import type { Finding } from '../lib/operator/doctor/groups.ts';
import { amount, type CommandContext, createStyle, line, printable, wrapped } from './output.ts';

const LABELS: Record<CheckStatus, string> = { ok: '[OK]', warn: '[WARN]', error: '[ERROR]' };
/** Column in which the identifiers of all checks begin, whatever the label. */
const MARGIN = 9;

/** Label of a check without a result. */
const UNKNOWN = '[--]';

/** Checks under a heading. */
export interface CheckGroup {
  title: string;
  checks: readonly Finding[];
}

/** Prints the verdicts of a doctor, with the fix below each problem, and how many problems there are. */
export const printChecks = (checks: readonly Check[], context: CommandContext): void =>
  printGroups([{ title: '', checks }], context);

/** The same by groups, each with its title unless that is empty. */
export function printGroups(groups: readonly CheckGroup[], context: CommandContext): void {
  const style = createStyle(context.stdout, context.env);
  const paint = { ok: style.green, warn: style.yellow, error: style.red };
  const body = (text: string) => wrapped(context.stdout, text, MARGIN + 1);
  /** The first check that printed each fix. One cause may fail many checks. */
  const printed = new Map<string, string>();

  function printCheck({ id, status, summary, next, isUnknown, covers }: Finding): void {
    const label = isUnknown ? UNKNOWN : LABELS[status];
    const shown = isUnknown ? style.dim(label) : paint[status](label);
    const [first, ...rest] = body(`${id}: ${printable(summary)}`);
    line(context.stdout, `${' '.repeat(MARGIN - label.length)}${shown} ${first?.trimStart()}`);
    for (const text of rest) line(context.stdout, text);
    printFix(next, id);
    if (covers) for (const text of body(`Same cause: ${covers.join(', ')}`)) line(context.stdout, style.dim(text));
  }

  function printFix(next: string | undefined, id: string): void {
    if (next === undefined) return;
    const before = printed.get(next);
    for (const text of body(`Fix: ${before === undefined ? printable(next) : `as for ${before}`}`)) {
      line(context.stdout, text);
    }
    if (before === undefined) printed.set(next, id);
  }

  for (const { title, checks } of groups) {
    if (title !== '') line(context.stdout, style.bold(title));
    for (const check of checks) printCheck(check);
    line(context.stdout);
  }
  line(
    context.stdout,
    conclusion(
      groups.flatMap(({ checks }) => checks),
      style,
    ),
  );
}

function conclusion(checks: readonly Check[], { green, yellow, red }: ReturnType<typeof createStyle>): string {
  const count = (status: CheckStatus) => checks.filter((check) => check.status === status && !check.isUnknown).length;
  const unknown = checks.filter(({ isUnknown }) => isUnknown).length;
  const parts = [
    ...(count('error') > 0 ? [red(amount(count('error'), 'error'))] : []),
    ...(count('warn') > 0 ? [yellow(amount(count('warn'), 'warning'))] : []),
  ];
  if (parts.length === 0 && unknown === 0)
    return green(checks.length === 1 ? '1 check is fine.' : `All ${checks.length} checks are fine.`);
  const fine = checks.length - unknown;
  if (parts.length === 0) parts.push(green(`${amount(fine, 'check')} ${fine === 1 ? 'is' : 'are'} fine`));
  if (unknown > 0) parts.push(`${unknown} not known`);
  return `${parts.join(', ')}.`;
}
