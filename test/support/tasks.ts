import type { Page } from 'playwright-core';

interface TraceEvent {
  name: string;
  cat: string;
  ph: string;
  pid: number;
  tid: number;
  ts: number;
  /** Microseconds of the thread's own processor time. */
  tdur?: number;
  args?: { name?: string };
}

export interface Task {
  /** Milliseconds of processor time. A busy machine stretches a task, but not this. */
  time: number;
  /** Name of the last `performance.mark` before it. */
  mark: string;
  /** Whether it made a frame: animation callbacks, layout and paint. */
  isFrame: boolean;
}

/** The tasks that the page's main thread ran during `work`. */
export async function tasksOf(page: Page, work: () => Promise<void>): Promise<Task[]> {
  const devtools = await page.context().newCDPSession(page);
  const events: TraceEvent[] = [];
  devtools.on('Tracing.dataCollected', ({ value }) => events.push(...(value as unknown as TraceEvent[])));
  await devtools.send('Tracing.start', {
    transferMode: 'ReportEvents',
    traceConfig: { includedCategories: ['toplevel', 'blink.user_timing', 'devtools.timeline', '__metadata'] },
  });
  await work();
  const complete = new Promise((resolve) => devtools.once('Tracing.tracingComplete', resolve));
  await devtools.send('Tracing.end');
  await complete;
  await devtools.detach();
  const mains = new Set(
    events.filter(({ name, args }) => name === 'thread_name' && args?.name === 'CrRendererMain').map(keyOf),
  );
  const tasks: Task[] = [];
  let mark = '';
  for (const event of events.toSorted((a, b) => a.ts - b.ts)) {
    if (!mains.has(keyOf(event))) continue;
    const last = tasks.at(-1);
    if (event.name === 'ThreadControllerImpl::RunTask') {
      tasks.push({ time: (event.tdur ?? 0) / 1000, mark, isFrame: false });
    } else if (event.name === 'Layerize' && last) last.isFrame = true;
    if (/^[RIi]$/.test(event.ph) && event.cat === 'blink.user_timing') mark = event.name;
  }
  return tasks;
}

const keyOf = ({ pid, tid }: TraceEvent): string => `${pid} ${tid}`;
