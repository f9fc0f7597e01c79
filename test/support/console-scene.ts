import { mediaDevice, PNG } from './media.ts';
import { type Phone, startPhone } from './phone.ts';
import { pair, post, type Target } from './relay.ts';

/** A relay with something on every screen of the console: devices, commands, messages, files, a request to pair. */
export async function fillRelay(relay: Target): Promise<{ phone: Phone }> {
  const phone = await startPhone(relay, {
    device: {
      device_name: 'Pixel 9',
      client_surface: 'android',
      device_platform: 'Android 16',
      device_model: 'Pixel 9 Pro',
    },
    policy: { ttl_seconds: 2_592_000, grants: { terminal: 3600 } },
    script: ({ path }) => (path === '/tap' ? { status: 403, error: 'blocked package' } : { status: 200, result: {} }),
  });
  const call = (path: string, body?: unknown) =>
    relay.fetch(path, { ...(body ? post(body) : {}), headers: phone.headers });
  await call('/current_app');
  await call('/open_app', { package: 'org.example.notes' });
  await call('/tap', { x: 540, y: 1200 });
  const away = await pair(relay, { device: { device_name: 'Study tablet', client_surface: 'web' } });
  away.client.terminate();
  const files = await mediaDevice(relay);
  await files.put(PNG, 'evening-over-the-lake.png');
  await relay.operator('/phone/message', post({ title: 'Kitchen', text: 'Dinner is ready. Who sets the table?' }));
  await relay.operator('/phone/message', post({ text: 'The backup of last night took 12 minutes.' }));
  await relay.fetch('/pairing', { method: 'POST', headers: { origin: 'https://elsewhere.example' } });
  return { phone };
}
