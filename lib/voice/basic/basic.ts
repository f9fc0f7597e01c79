import type { Config } from '../../config.ts';
import { RelayError } from '../../errors.ts';
import type { Host } from '../../host/index.ts';
import type { Upstream } from '../../host/upstream.ts';
import { type Clock, every } from '../../kit/clock.ts';
import { createAdmission } from '../../kit/semaphore.ts';
import type { Log } from '../../log.ts';
import type { DenyList } from '../../media/deny-list.ts';
import type { UploadBody } from '../../media/uploads.ts';
import type { VoiceConfig } from '../config.ts';
import type { VoiceCredentials } from '../credentials.ts';
import type { VoicePrincipal } from '../principal.ts';
import { createClips } from './clips.ts';
import { type SynthesizeRequest, synthesize } from './synthesize.ts';
import { type Transcript, transcribe } from './transcribe.ts';

/** Concurrent calls, of one principal (contract 05 §15) and of all. */
const MAX_PER_PRINCIPAL = 8;
const MAX_CALLS = 64;
const RETRY_AFTER = 2;

export interface BasicVoiceDeps {
  /** Absent at the edge. */
  host?: Host;
  config: Pick<Config, 'agentConfig'>;
  /** True if a real path is in a location of secrets. Absent at the edge. */
  isSecret?: DenyList;
  clock: Clock;
  log: Log;
  upstream: Upstream;
  credentials: VoiceCredentials;
  settings: Pick<VoiceConfig, 'basic'>;
}

/** The caller of a route, and the signal that aborts its call. */
export interface BasicCaller {
  principal: VoicePrincipal;
  /** Aborts when the client hangs up. */
  signal: AbortSignal;
}

/** Milliseconds between sweeps for clips of killed relays. */
const SWEEP_PERIOD = 300_000;

/** The basic path (contract 05 §6 to §8): speech to text for a clip, and text to speech. */
export function createBasicVoice(deps: BasicVoiceDeps) {
  const { log } = deps;
  const clips = createClips(deps.host, deps.clock, log);
  const stopping = new AbortController();
  let cancelSweeps = () => {};
  const settling = new Set<Promise<unknown>>();
  const admit = createAdmission({
    perOwner: MAX_PER_PRINCIPAL,
    total: MAX_CALLS,
    message: 'too many voice calls at a time',
    retryAfter: RETRY_AFTER,
  });

  /** Runs one call of a principal. Its signal aborts when the client hangs up or the relay stops. */
  async function call<T>(
    label: string,
    { principal, signal }: BasicCaller,
    work: (signal: AbortSignal, owner: string) => Promise<T>,
  ): Promise<T> {
    const owner = `${principal.kind}:${principal.key}`;
    // Not `AbortSignal.any`: Node 20 keeps a reference to its result as long as the relay runs.
    const end = new AbortController();
    const abort = () => end.abort();
    signal.addEventListener('abort', abort);
    stopping.signal.addEventListener('abort', abort);
    if (signal.aborted || stopping.signal.aborted) abort();
    const running = admit(owner, () => work(end.signal, owner));
    settling.add(running);
    try {
      return await running;
    } catch (error) {
      if (stopping.signal.aborted) throw new RelayError('unavailable', 'the relay is stopping');
      if (signal.aborted) throw new RelayError('invalid', 'the client hung up');
      if (error instanceof RelayError && error.kind === 'internal') log.warn(`${label} failed: ${error.message}`);
      throw error;
    } finally {
      signal.removeEventListener('abort', abort);
      stopping.signal.removeEventListener('abort', abort);
      settling.delete(running);
    }
  }

  return {
    /**
     * Receives a clip and transcribes it. The clip is always removed.
     * @throws RelayError `invalid`, `too-large`, `timeout`, `unauthorized` and others of `Uploads`; `rate-limited`;
     * `internal` for a failed provider, with `provider`.
     */
    transcribe(caller: BasicCaller, body: Omit<UploadBody, 'owner'>, profile: string | null): Promise<Transcript> {
      return call('transcription', caller, (signal, owner) =>
        clips.use({ ...body, owner }, async (clip) => {
          signal.throwIfAborted();
          return transcribe(deps, clip, profile, signal);
        }),
      );
    },

    /**
     * Speaks a text as MP3.
     * @throws RelayError `rate-limited`; `internal` for a failed provider, with `provider`.
     */
    synthesize: (caller: BasicCaller, request: SynthesizeRequest) =>
      call('speech', caller, (signal) => synthesize(deps, request, signal)),

    start() {
      const failed = () => log.warn('voice clips of an earlier run could not be removed');
      clips.sweep().catch(failed);
      cancelSweeps = every(deps.clock, SWEEP_PERIOD, clips.sweep, failed);
    },

    /** Aborts every call. Resolves when all of their files are removed. */
    async stop(): Promise<void> {
      cancelSweeps();
      stopping.abort();
      await clips.stop();
      await Promise.allSettled(settling);
    },
  };
}
