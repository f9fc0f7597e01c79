import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { createNodeUpstream } from '../../../../lib/host/node/upstream.ts';
import type { Clock } from '../../../../lib/kit/clock.ts';
import { systemClock } from '../../../../lib/kit/clock.ts';
import type { Mapping } from '../../../../lib/kit/yaml.ts';
import { createLog } from '../../../../lib/log.ts';
import { createBasicVoice } from '../../../../lib/voice/basic/basic.ts';
import { parseSynthesize } from '../../../../lib/voice/basic/synthesize.ts';
import { createVoiceCredentials } from '../../../../lib/voice/credentials.ts';
import type { OauthStore } from '../../../../lib/voice/oauth-store.ts';
import type { VoicePrincipal } from '../../../../lib/voice/principal.ts';
import { mappingOf } from '../../../../lib/voice/section.ts';
import { createTestHost } from '../../../support/host.ts';

const BOUNDARY = 'clip-boundary';

export interface VoiceOptions {
  /** Variables of the providers. */
  env?: Record<string, string>;
  /** Content of the root configuration. */
  config?: Mapping;
  /** Content of profiles by name. */
  profiles?: Record<string, Mapping>;
  clock?: Clock;
  oauth?: OauthStore;
  /** Without a host, as at the edge. */
  hasHost?: boolean;
}

/** The basic path with files in a temporary directory of its own, and configurations in memory. */
export async function basicVoice(options: VoiceOptions = {}) {
  const { env = {}, config = {}, profiles = {}, clock = systemClock, oauth, hasHost = true } = options;
  const home = await mkdtemp(join(tmpdir(), 'svc-relay-test-'));
  const log: string[] = [];
  const host = createTestHost({ agentHome: home, env: { PATH: process.env.PATH ?? '', TMPDIR: home, ...env } });
  const voice = createBasicVoice({
    host: hasHost ? host : undefined,
    config: { agentConfig: `${home}/config.yaml` },
    isSecret: async (path) => path.endsWith('/secret.md'),
    clock,
    log: createLog('DEBUG', (line) => log.push(line)),
    upstream: createNodeUpstream(),
    credentials: createVoiceCredentials({ env, oauth, directories: [home] }),
    settings: {
      basic: async (profile) => {
        const found = profile === null ? undefined : profiles[profile];
        return {
          tts: mappingOf({ ...config, ...found }, 'tts'),
          stt: mappingOf({ ...config, ...found }, 'stt'),
          profile,
          configScope: found ? 'profile' : 'global',
          configPath: found ? `${home}/profiles/${profile}/config.yaml` : null,
          fallbackToGlobal: profile !== null && !found,
        };
      },
    },
  });
  onTestFinished(async () => {
    await voice.stop();
    await rm(home, { recursive: true, force: true });
  });
  const callerOf = ({ signal = new AbortController().signal, key = 'a' } = {}) => ({
    principal: { kind: 'api', key } satisfies VoicePrincipal,
    signal,
  });
  return {
    voice,
    home,
    log,
    /** Names of what lies in the temporary directory. */
    left: async () => (await readdir(home)).filter((name) => name.startsWith('svc-relay-voice-')),
    speak: (
      { profile, ...body }: Record<string, unknown> & { profile?: string },
      caller?: { signal?: AbortSignal; key?: string },
    ) => voice.synthesize(callerOf(caller), parseSynthesize(body, profile ?? null)),
    transcribe: (
      clip: ClipOptions = {},
      { profile = null, ...caller }: { profile?: string | null; signal?: AbortSignal; key?: string } = {},
    ) => voice.transcribe(callerOf(caller), uploadOf(clip), profile),
  };
}

export interface ClipOptions {
  content?: Uint8Array | AsyncIterable<Uint8Array>;
  head?: string;
  type?: string;
}

function uploadOf({ content = Buffer.from('RIFF'), head = 'name="audio"', type = 'audio/wav' }: ClipOptions) {
  async function* chunks() {
    yield Buffer.from(`--${BOUNDARY}\r\nContent-Disposition: form-data; ${head}\r\nContent-Type: ${type}\r\n\r\n`);
    if (content instanceof Uint8Array) yield content;
    else yield* content;
    yield Buffer.from(`\r\n--${BOUNDARY}--\r\n`);
  }
  return {
    contentType: `multipart/form-data; boundary=${BOUNDARY}`,
    contentLength: null,
    chunks: chunks(),
    isWelcome: () => true,
  };
}
