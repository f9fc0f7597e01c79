import { fileURLToPath } from 'node:url';
import { type FakeApi, type OnEnd, startFakeApi } from './fake-api-server.ts';
import { put } from './profiles.ts';
import { pair, startNodeTarget, type Target } from './relay.ts';

const GATEWAY = fileURLToPath(new URL('./fake-gateway.mjs', import.meta.url));

/** Answers `POST …/chat/stream` with reasoning, a tool call and formatted text. */
async function answerChat(api: FakeApi): Promise<void> {
  api.onStream(async (exchange) => {
    exchange.open();
    await exchange.event({ type: 'reasoning_delta', delta: 'The log of last night tells how long it took.' });
    const call = { tool_name: 'terminal', tool_call_id: 'c1' };
    await exchange.event({ type: 'tool.started', ...call, args: { command: 'tail -n 1 backup.log' } });
    await exchange.event({ type: 'tool.completed', ...call, result: 'finished after 12 min, 0 errors' });
    await exchange.event({
      type: 'assistant.delta',
      delta:
        'It took **12 minutes** and had no errors. To see it yourself:\n```sh\ntail -n 1 backup.log\n```\nThe next one starts at 02:00.',
    });
    await exchange.event({ type: 'run.completed' });
    exchange.end();
  });
}

/**
 * A relay whose agent, profiles, quotas, TUI and notifications give every screen of the app something to show. What it
 * starts ends with `onEnd`.
 */
export async function startFilledRelay(onEnd: OnEnd): Promise<Target> {
  const api = await startFakeApi(onEnd);
  await answerChat(api);
  const provider = await startFakeApi(onEnd);
  const resetsAt = new Date(Date.now() + 7.2e6).toISOString();
  provider.onAny((exchange) =>
    exchange.answer(200, { usage: { rolling: { percent: 12.5 }, weekly: { percent: 76, resetsAt } } }),
  );
  const relay = await startNodeTarget({
    env: {
      RELAY_WEBAPI_URL: api.url,
      RELAY_PROVIDER_USAGE_ENABLED: 'yes',
      RELAY_TUI_COMMAND: JSON.stringify([process.execPath, GATEWAY]),
      // A tmux server would outlive the relay.
      RELAY_TERMINAL_TMUX: '0',
    },
  });
  onEnd(() => void relay.stop());
  const speech = { provider: 'openai', openai: { api_key: 'sk-fake', base_url: provider.url } };
  await put(relay, {
    '.env': `OPENCODE_GO_API_KEY=sk-fake\nOPENCODE_GO_BASE_URL=${provider.url}\n`,
    'config.yaml': JSON.stringify({
      model: { default: 'large', provider: 'acme' },
      description: 'The one at home',
      tts: speech,
      stt: speech,
    }),
    'SOUL.md': '# Ada\n\nShe is kind and brief.\n\nShe asks before she deletes anything.\n',
    'memories/MEMORY.md': 'Backups run at two in the morning.\n',
    'memories/people.md': 'Grace likes tea.\n',
    'skills/tools/search/SKILL.md': '---\nname: search\ndescription: Finds things\n---\n',
    'profiles/work/config.yaml': 'description: The one at work\n',
  });
  const { client } = await pair(relay, { device: { device_name: 'Pixel 9', client_surface: 'android' } });
  for (const [package_name, title, text] of [
    ['org.example.mail', 'Grace', 'Lunch at noon?'],
    ['org.example.bank', 'Sign in', 'Your number is 482 913'],
    ['org.example.calendar', 'Dentist', 'Tomorrow at 9:30'],
  ]) {
    client.send('notifications', 'notification.posted', {
      package_name,
      title,
      text,
      posted_at: Date.now(),
      key: '0|1',
    });
  }
  return relay;
}
