import { describeError } from '../errors.ts';
import { errnoOf } from '../host/errors.ts';
import type { Host } from '../host/index.ts';
import { concatBytes, utf8ToBytes } from '../kit/bytes.ts';
import { type Clock, every } from '../kit/clock.ts';
import type { JsonObject } from '../kit/json.ts';
import { withTimeout } from '../kit/timeouts.ts';
import { DAY, MiB } from '../kit/units.ts';
import type { Mapping } from '../kit/yaml.ts';
import type { Log } from '../log.ts';
import { canonicalJson, type Json } from '../pairing/canonical-json.ts';
import { numberOf } from './section.ts';
import { wavHeader } from './streaming/wav.ts';

/** Bytes that wait for the disk, of one session and of all. A recording that would exceed them ends early. */
const MAX_WAITING = 8 * MiB;
const MAX_WAITING_IN_ALL = 64 * MiB;
/** Bytes that a session may exceed them by for its event log, which is given up last. */
const LOG_RESERVE = MiB / 2;
/** Milliseconds, or bytes, for which audio is collected, so that one write contains many frames. */
const GATHER_TIME = 250;
const GATHER_BYTES = MiB / 4;
/** Milliseconds that a client waits for its recording, after which it gets none. */
const SAVE_TIMEOUT = 3000;
/** Maximum bytes of an event log. A line then says that it is full; the last line of the session is still written. */
const MAX_LOG = 16 * MiB;
/** Maximum files of a directory. A sweep removes the oldest over it, unless files are kept permanently. */
const MAX_FILES = 2000;
/** Milliseconds between sweeps of a directory that new sessions cause. */
const SWEEP_PERIOD = 60_000;
const RETENTION_DAYS = 14;
const MAX_RETENTION_DAYS = 3650;
/** Directories that are swept. A profile may name its own. */
const MAX_DIRECTORIES = 64;
const ARTIFACT = /^(?:voice-output|realtime|realtime-agent)-\d{8}-\d{6}-[A-Za-z0-9]{1,12}(?:-\d+)?\.(?:jsonl|wav)$/;

/** Event log and recordings of one session (contract 05 §15). Nothing here throws or blocks. */
export interface SessionArtifacts {
  /** Absolute path of the event log; empty without a host. */
  readonly logPath: string;
  /** Adds a line: the event with sorted keys and `unix_ms`, its audio replaced by its size. A full log takes no more. */
  record(event: JsonObject): void;
  /** Adds the last line, even to a full log. */
  recordEnd(event: JsonObject): void;
  /** Starts the next recording. Returns its path; empty without a host. */
  startAudio(sampleRate: number): string;
  audio(pcm: Uint8Array): void;
  /** Completes the recording. */
  endAudio(): void;
  /** Like `endAudio`. Resolves with the path once the file is complete; empty if that fails or takes too long. */
  savedAudio(path: string): Promise<string>;
  /** Resolves once everything is on disk, or has failed to get there. */
  settled(): Promise<void>;
}

export interface ArtifactsDeps {
  host?: Host;
  clock: Clock;
  log: Log;
}

export interface NewArtifacts {
  /** Beginning of the file names. */
  prefix: 'voice-output' | 'realtime' | 'realtime-agent';
  sessionId: string;
  scope: UsedDirectory;
}

/** A directory of artifacts, with the section of the configuration that sets the retention. */
export interface UsedDirectory {
  runDir: string;
  section: Mapping;
}

export type Artifacts = ReturnType<typeof createArtifacts>;

/** `run_retention_days` of a section; 14 unless it is a number of days; 0 keeps files permanently. */
function daysOf({ run_retention_days: days }: Mapping): number {
  const count = numberOf(days);
  if (count === 0) return Number.POSITIVE_INFINITY;
  return count !== undefined && count >= 1 ? Math.min(count, MAX_RETENTION_DAYS) : RETENTION_DAYS;
}

/** Event logs and recordings of voice sessions. At the edge, which has no files, nothing is stored. */
export function createArtifacts({ host, clock, log }: ArtifactsDeps) {
  /**
   * Keyed by directory: days of retention, and the time from which a new session may sweep it again (monotonic
   * milliseconds).
   */
  const directories = new Map<string, { days: number; next: number }>();
  const backlog: Backlog = { bytes: 0 };
  let cancel = () => {};

  async function sweepDirectory(directory: string, days: number): Promise<void> {
    if (days === Number.POSITIVE_INFINITY) return;
    const { files } = host as Host;
    const listed = (await files.list(directory)) ?? [];
    const names = listed.filter(({ name, kind }) => kind === 'file' && ARTIFACT.test(name)).map(({ name }) => name);
    const tooMany = new Set(names.toSorted(byStamp).slice(0, Math.max(0, names.length - MAX_FILES)));
    for (const name of names) {
      const path = `${directory}/${name}`;
      const modified = tooMany.has(name) ? Number.NEGATIVE_INFINITY : (await files.stat(path))?.modified;
      if (modified !== undefined && clock.now() - modified > days * DAY) await files.remove(path);
    }
  }

  async function sweep(directory: string, days: number): Promise<void> {
    await sweepDirectory(directory, days).catch((error) => {
      log.warn(`old voice recordings could not be removed: ${errnoOf(error) || describeError(error)}`);
    });
  }

  async function sweepAll(): Promise<void> {
    for (const [directory, { days }] of directories) await sweep(directory, days);
  }

  function sweepFromNowOn({ runDir, section }: UsedDirectory): void {
    const known = directories.get(runDir);
    if (!known && directories.size >= MAX_DIRECTORIES) return;
    directories.set(runDir, { days: daysOf(section), next: known?.next ?? Number.NEGATIVE_INFINITY });
  }

  /** A new session sweeps its directory (contract 06 §10), unless another one has just done so. */
  function sweepForSession(directory: string): void {
    const known = directories.get(directory);
    const now = clock.monotonic();
    if (!known || known.next > now) return;
    known.next = now + SWEEP_PERIOD;
    void sweep(directory, known.days);
  }

  return {
    open({ prefix, sessionId, scope }: NewArtifacts): SessionArtifacts {
      if (!host) return NO_ARTIFACTS;
      sweepFromNowOn(scope);
      sweepForSession(scope.runDir);
      const name = `${prefix}-${stampOf(clock.now())}-${shortOf(sessionId)}`;
      return new FileArtifacts({ host, clock, log, backlog, stem: `${scope.runDir}/${name}` });
    },

    /** Removes old files from these directories now, and once a day from all that were used. */
    start(used: readonly UsedDirectory[]): void {
      if (!host) return;
      for (const directory of used) sweepFromNowOn(directory);
      void sweepAll();
      cancel = every(clock, DAY, sweepAll, () => {});
    },

    stop: (): void => cancel(),
  };
}

const stampIn = (name: string): string => /\d{8}-\d{6}/.exec(name)?.[0] ?? '';
const byStamp = (a: string, b: string): number => (stampIn(a) < stampIn(b) ? -1 : stampIn(a) > stampIn(b) ? 1 : 0);

const shortOf = (sessionId: string): string => sessionId.replace(/[^A-Za-z0-9]/g, '').slice(0, 12);

/** `YYYYMMDD-HHMMSS` in local time. */
function stampOf(now: number): string {
  const date = new Date(now);
  const two = (value: number) => String(value).padStart(2, '0');
  const day = `${date.getFullYear()}${two(date.getMonth() + 1)}${two(date.getDate())}`;
  return `${day}-${two(date.getHours())}${two(date.getMinutes())}${two(date.getSeconds())}`;
}

const NO_ARTIFACTS: SessionArtifacts = {
  logPath: '',
  record() {},
  recordEnd() {},
  startAudio: () => '',
  audio() {},
  endAudio() {},
  savedAudio: async () => '',
  settled: async () => {},
};

/** Bytes of all sessions that wait for the disk. */
interface Backlog {
  bytes: number;
}

interface FileArtifactsDeps {
  host: Host;
  clock: Clock;
  log: Log;
  backlog: Backlog;
  /** Absolute path without a suffix. */
  stem: string;
}

/** Writes behind, in order within each file. */
class FileArtifacts implements SessionArtifacts {
  readonly logPath: string;
  readonly #deps: FileArtifactsDeps;
  /** Bytes to append, by path. A recording's final header is written after everything appended to the recording. */
  #appends = new Map<string, Uint8Array[]>();
  #headers = new Map<string, Uint8Array>();
  #waiting = 0;
  /** Bytes of the event log. */
  #logged = 0;
  #isFull = false;
  #recordings = 0;
  #audio: { path: string; sampleRate: number; bytes: number } | undefined;
  #writing: Promise<void> | undefined;
  /** Set when waiting data must be written at once. `#endWait` ends the wait for more of it. */
  #isUrgent = false;
  #endWait = () => {};
  #hasFailed = false;

  constructor(deps: FileArtifactsDeps) {
    this.#deps = deps;
    this.logPath = `${deps.stem}.jsonl`;
  }

  record(event: JsonObject): void {
    if (this.#hasFailed || this.#isFull) return;
    const line = this.#lineOf(event);
    this.#logged += line.length;
    this.#isFull = this.#logged > MAX_LOG;
    this.#append(this.logPath, this.#isFull ? this.#lineOf({ type: 'voice.log.full' }) : line);
    if (typeof event.audio_base64 !== 'string') this.#flushNow();
  }

  recordEnd(event: JsonObject): void {
    if (this.#hasFailed) return;
    this.#append(this.logPath, this.#lineOf(event));
    this.#flushNow();
  }

  #lineOf({ audio_base64: audio, ...event }: JsonObject): Uint8Array {
    const line: JsonObject = { ...event, unix_ms: Math.round(this.#deps.clock.now()) };
    if (typeof audio === 'string') line.audio_base64 = `<${event.byte_count ?? audio.length} bytes>`;
    return utf8ToBytes(`${canonicalJson(JSON.parse(JSON.stringify(line)) as Json)}\n`);
  }

  startAudio(sampleRate: number): string {
    this.endAudio();
    const suffix = ++this.#recordings === 1 ? '' : `-${this.#recordings}`;
    const path = `${this.#deps.stem}${suffix}.wav`;
    this.#audio = { path, sampleRate, bytes: 0 };
    // If a crash leaves the recording incomplete, a player reads it to the end of the file.
    this.#append(path, wavHeader(sampleRate));
    return path;
  }

  audio(pcm: Uint8Array): void {
    if (!this.#audio || this.#hasFailed) return;
    const inAll = this.#deps.backlog.bytes + pcm.length;
    if (this.#waiting + pcm.length > MAX_WAITING || inAll > MAX_WAITING_IN_ALL) {
      this.#deps.log.warn('a voice recording ends early: the disk is too slow');
      this.endAudio();
      return;
    }
    this.#audio.bytes += pcm.length;
    this.#append(this.#audio.path, pcm);
  }

  endAudio(): void {
    if (!this.#audio) return;
    const { path, sampleRate, bytes } = this.#audio;
    this.#audio = undefined;
    const header = wavHeader(sampleRate, bytes);
    if (this.#take(header.length)) this.#headers.set(path, header);
    this.#flushNow();
  }

  async savedAudio(path: string): Promise<string> {
    this.endAudio();
    const { clock } = this.#deps;
    const isSaved = this.settled().then(() => !this.#hasFailed);
    return (await withTimeout({ clock, timeout: SAVE_TIMEOUT }, isSaved, () => false)) ? path : '';
  }

  async settled(): Promise<void> {
    while (this.#writing) {
      this.#flushNow();
      await this.#writing;
    }
  }

  #flushNow(): void {
    this.#isUrgent = true;
    this.#endWait();
  }

  #append(path: string, bytes: Uint8Array): void {
    if (!this.#take(bytes.length)) return;
    const waiting = this.#appends.get(path);
    if (waiting) waiting.push(bytes);
    else this.#appends.set(path, [bytes]);
  }

  /** Counts bytes that will wait for the disk. False if they cannot be taken. */
  #take(length: number): boolean {
    if (this.#hasFailed) return false;
    if (this.#waiting + length > MAX_WAITING + LOG_RESERVE) {
      this.#fail('the disk is too slow');
      return false;
    }
    this.#count(length);
    if (this.#waiting >= GATHER_BYTES) this.#flushNow();
    this.#writing ??= this.#writeAll();
    return true;
  }

  /** Waits for more to write, unless something is urgent. */
  async #gather(): Promise<void> {
    // All lines of one turn go to the disk in one piece.
    await Promise.resolve();
    if (!this.#isUrgent) {
      await new Promise<void>((resolve) => {
        const cancel = this.#deps.clock.after(GATHER_TIME, resolve);
        this.#endWait = () => {
          cancel();
          resolve();
        };
      });
      this.#endWait = () => {};
    }
    this.#isUrgent = false;
  }

  async #writeAll(): Promise<void> {
    const { files } = this.#deps.host;
    do {
      await this.#gather();
      const [appends, headers] = [this.#appends, this.#headers];
      this.#appends = new Map();
      this.#headers = new Map();
      for (const [path, chunks] of appends) {
        await this.#write(concatBytes(...chunks), (bytes) => files.append(path, bytes));
      }
      for (const [path, header] of headers) await this.#write(header, (bytes) => files.overwriteStart(path, bytes));
    } while (this.#appends.size + this.#headers.size > 0);
    this.#writing = undefined;
  }

  async #write(bytes: Uint8Array, write: (bytes: Uint8Array) => Promise<void>): Promise<void> {
    try {
      if (!this.#hasFailed) await write(bytes);
    } catch (error) {
      this.#fail(errnoOf(error) || describeError(error));
    }
    this.#count(-bytes.length);
  }

  #count(bytes: number): void {
    this.#waiting += bytes;
    this.#deps.backlog.bytes += bytes;
  }

  #fail(reason: string): void {
    this.#hasFailed = true;
    for (const bytes of [...[...this.#appends.values()].flat(), ...this.#headers.values()]) this.#count(-bytes.length);
    this.#appends.clear();
    this.#headers.clear();
    this.#deps.log.warn(`a voice session is no longer recorded: ${reason}`);
  }
}
