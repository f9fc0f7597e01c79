import { Worker } from 'node:worker_threads';
import { describeError } from '../../errors.ts';
import { createYaml, createYamlReader, createYamlSplicer, type Yaml } from '../../kit/yaml.ts';
import type { Log } from '../../log.ts';
import type { HostYaml } from '../index.ts';
import { packageFile } from './packages.ts';

export interface YamlThreadOptions {
  /** Milliseconds for one text. */
  timeout?: number;
  /** Milliseconds without a text after which the thread ends. */
  idle?: number;
}

export interface YamlThread extends HostYaml {
  /** For a host that shares the thread with others: its `close` ends only its own pending calls. */
  share(log?: Log): HostYaml;
}

const TIMEOUT = 10_000;
const IDLE = 10_000;
const MAX_HEAP_MB = 128;
/** Maximum texts that wait for the thread. */
const MAX_PENDING = 4096;

type Problem = { ok: false; problem: string };
/** One text on its way to the thread: a method of `Yaml` and its arguments. */
type Call = { [Method in keyof Yaml]: [Method, ...Parameters<Yaml[Method]>] }[keyof Yaml];

/** A host that uses the thread. */
interface User {
  log?: Log | undefined;
}

interface Pending {
  user: User;
  call: Call;
  settle(result: unknown): void;
}

/** The thread's program. It is text, so that the same source runs before and after the build. */
const program = (library: string) => `
const { parentPort } = require('node:worker_threads');
const library = require(${JSON.stringify(library)});
const reader = (${createYamlReader})(library);
const yaml = (${createYaml})(library, reader, (${createYamlSplicer})(library, reader));
parentPort.on('message', ([method, ...rest]) => {
  const result = yaml[method](...rest);
  try {
    parentPort.postMessage(result);
  } catch {
    parentPort.postMessage({ ok: false, problem: 'not valid YAML (a value of a kind that nothing reads)' });
  }
});
`;

/**
 * Parses YAML in a separate thread, one text at a time: 20,000 keys take 0.2 s, and a malicious text may take forever.
 * The thread starts with the first text, and ends after a while without one, or when a text takes too long or too much
 * memory.
 */
export function createYamlThread({ timeout = TIMEOUT, idle = IDLE }: YamlThreadOptions = {}): YamlThread {
  let worker: Worker | undefined;
  let timer: NodeJS.Timeout | undefined;
  /** The first item is in the thread. */
  let queue: Pending[] = [];

  function start(): Worker {
    const started = new Worker(program(packageFile('yaml')), {
      eval: true,
      env: {},
      execArgv: [],
      stdout: true,
      stderr: true,
      resourceLimits: { maxOldGenerationSizeMb: MAX_HEAP_MB },
    });
    const failed = () => {
      if (worker === started) giveUp('not valid YAML (it takes too much memory)');
    };
    started.on('message', (result) => {
      if (worker === started) finish(result);
    });
    started.on('error', failed).on('exit', failed);
    return started;
  }

  /** Without a text, a later one starts the thread again. */
  function end(): void {
    clearTimeout(timer);
    void worker?.terminate();
    worker = undefined;
  }

  /** Ends the thread, and settles its current call. */
  function giveUp(problem: string): void {
    end();
    finish({ ok: false, problem } satisfies Problem);
  }

  function finish(result: unknown): void {
    clearTimeout(timer);
    queue.shift()?.settle(result);
    if (queue.length > 0) send();
    else rest();
  }

  function send(): void {
    const first = queue[0] as Pending;
    try {
      worker ??= start();
    } catch (error) {
      first.user.log?.error(`the YAML thread could not be started: ${describeError(error)}`);
      finish({ ok: false, problem: 'not read: no thread could be started' } satisfies Problem);
      return;
    }
    // A command that waits for a result must not exit before it.
    worker.ref();
    timer = setTimeout(() => giveUp('not valid YAML (it takes too long)'), timeout);
    worker.postMessage(first.call);
  }

  /** While idle, the thread keeps no process alive. */
  function rest(): void {
    worker?.unref();
    timer = setTimeout(end, idle).unref();
  }

  /** Settles the pending calls of a host. The thread continues with those of the others. */
  function leave(user: User): void {
    const waiting = queue.filter((pending) => pending.user === user);
    const isInThread = queue[0]?.user === user;
    queue = queue.filter((pending) => pending.user !== user);
    if (isInThread) end();
    for (const { settle } of waiting) settle({ ok: false, problem: 'not read: the relay stops' } satisfies Problem);
    if (isInThread && queue.length > 0) send();
  }

  const run = <T>(user: User, ...call: Call): Promise<T | Problem> =>
    new Promise((resolve) => {
      if (queue.length >= MAX_PENDING) return resolve({ ok: false, problem: 'not read: too many texts are waiting' });
      queue.push({ user, call, settle: resolve as Pending['settle'] });
      if (queue.length > 1) return;
      clearTimeout(timer);
      send();
    });

  const share = (log?: Log): HostYaml => {
    const user: User = { log };
    return {
      parseMapping: (text) => run(user, 'parseMapping', text),
      edit: (text, changes) => run(user, 'edit', text, changes),
      close: () => leave(user),
    };
  };

  const own = share();
  return {
    ...own,
    share,
    close() {
      own.close();
      if (queue.length === 0) end();
    },
  };
}
