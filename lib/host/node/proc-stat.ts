/** Fields of proc(5) `stat`; the text after the command starts with field 3. */
const STATE = 3 - 3;
const PARENT = 4 - 3;
const SESSION = 6 - 3;
const START_TIME = 22 - 3;

export interface Stat {
  name: string;
  state: string;
  parent: number;
  session: number;
  /** Clock ticks since boot. */
  startTime: number;
}

/** Fields of a `/proc/<pid>/stat` line. The name may contain `)` and spaces. */
export function parseStat(line: string): Stat | null {
  const open = line.indexOf('(');
  const close = line.lastIndexOf(')');
  if (open < 0 || close < open) return null;
  const fields = line
    .slice(close + 1)
    .trim()
    .split(/\s+/);
  const [state, parent, session, startTime] = [STATE, PARENT, SESSION, START_TIME].map((at) => fields[at] ?? '');
  if (!/^\d+$/.test(startTime as string)) return null;
  return {
    name: line.slice(open + 1, close),
    state: state as string,
    parent: Number(parent),
    session: Number(session),
    startTime: Number(startTime),
  };
}
