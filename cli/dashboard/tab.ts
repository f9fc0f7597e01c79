import { encode } from 'uqr';
import { setupQrText } from '../../lib/dashboard/setup-qr.ts';
import { asObject, type JsonObject } from '../../lib/kit/json.ts';

// The Relay tab of a dashboard, which runs in a browser. Text is only ever set as text, never as markup.

const SVG = 'http://www.w3.org/2000/svg';
/** Light modules around a QR code. */
const QUIET_ZONE = 4;

export interface TabOptions {
  /** Where the dashboard has mounted the plugin: `/api/plugins/svc-relay`. */
  api: string;
}

/** Draws the tab into an element of the dashboard: the relay's state, the paired devices, and codes to connect a phone. */
export function mount(root: HTMLElement, { api }: TabOptions): void {
  root.className = 'svc-relay';
  root.replaceChildren(relaySection(api), devicesSection(api), setupSection(), pairingSection(api));
}

/** Calls the plugin. Throws an Error with its detail. */
async function call(url: string, init: RequestInit = {}): Promise<JsonObject> {
  const response = await fetch(url, { ...init, headers: { accept: 'application/json' } });
  const body = asObject(await response.json().catch(() => null)) ?? {};
  if (response.ok) return body;
  const detail = asObject(body.detail)?.error ?? body.detail;
  throw new Error(typeof detail === 'string' ? detail : `HTTP ${response.status}`);
}

function element(name: string, text = '', ...children: Node[]): HTMLElement {
  const made = document.createElement(name);
  if (text !== '') made.textContent = text;
  made.append(...children);
  return made;
}

/** A section that fills itself, and shows why it cannot. */
function section(title: string, fill: (body: HTMLElement) => Promise<void>): HTMLElement {
  const body = element('div', 'Loading …');
  void attempt(body, () => fill(body));
  return element('section', '', element('h2', title), body);
}

/** Does something for a section, and shows there why it fails. */
async function attempt(body: HTMLElement, work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    const alert = element('p', (error as Error).message);
    alert.setAttribute('role', 'alert');
    body.replaceChildren(alert);
  }
}

const relaySection = (api: string) =>
  section('Relay', async (body) => {
    const info = await call(`${api}/overview`);
    body.replaceChildren(
      element('p', `Version ${info.version}, running for ${Math.round(Number(info.uptime_seconds) / 60)} minutes`),
      element('p', `Paired devices: ${info.paired_device_count}`),
    );
  });

const devicesSection = (api: string) =>
  section('Devices', async function fill(body): Promise<void> {
    const { sessions } = await call(`${api}/sessions`);
    const rows = (Array.isArray(sessions) ? sessions : []).map((each) => asObject(each) ?? {});
    const items = rows.map((row) => {
      const revoke = element('button', 'Revoke');
      revoke.addEventListener('click', async () => {
        const path = `${api}/sessions/${encodeURIComponent(String(row.token_prefix))}`;
        await call(path, { method: 'DELETE' }).catch(() => {});
        await fill(body);
      });
      return element('li', '', element('span', `${row.device_name} (${row.token_prefix}) `), revoke);
    });
    body.replaceChildren(items.length > 0 ? element('ul', '', ...items) : element('p', 'No device is paired yet.'));
  });

/** The address in the browser is the one that a phone on the same network may use, so it is shown with the code. */
const setupSection = () =>
  section('Connect mobile app', async (body) => {
    const text = setupQrText(location.href);
    const { dashboard_url: address } = JSON.parse(text);
    body.replaceChildren(
      element('p', 'Scan this with the app, then sign in there. The code holds no credentials.'),
      qrCode(text, 'QR code with the address of this dashboard'),
      element('p', '', element('code', String(address))),
    );
  });

/** Makes a code only on request, since the first device to scan it is admitted, and removes it when it expires. */
const pairingSection = (api: string) =>
  section('Pair a device', async (body) => {
    const offer = () => {
      const button = element('button', 'Show a pairing code');
      button.addEventListener('click', () => void attempt(body, show));
      const hint = 'For phones that connect to the relay itself. The code admits one device.';
      body.replaceChildren(element('p', hint), button);
    };
    const show = async () => {
      const { code, qr_payload: payload, expires_at: end } = await call(`${api}/pairing`, { method: 'POST' });
      const until = new Date(Number(end) * 1000);
      const hint = element('p', `Scan this with the app, or enter the code, before ${until.toLocaleTimeString()}.`);
      hint.setAttribute('role', 'status');
      const hide = element('button', 'Hide');
      hide.addEventListener('click', offer);
      body.replaceChildren(
        hint,
        qrCode(String(payload), 'QR code to pair a device'),
        element('p', '', element('code', String(code))),
        hide,
      );
      setTimeout(() => hide.isConnected && offer(), Math.max(0, until.getTime() - Date.now()));
    };
    offer();
  });

function qrCode(text: string, label: string): SVGElement {
  const { data, size } = encode(text, { border: 0 });
  const side = size + 2 * QUIET_ZONE;
  const dark = data.flatMap((row, y) =>
    row.flatMap((isDark, x) => (isDark ? [`M${x + QUIET_ZONE} ${y + QUIET_ZONE}h1v1h-1z`] : [])),
  );
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', `0 0 ${side} ${side}`);
  svg.setAttribute('role', 'img');
  svg.setAttribute('shape-rendering', 'crispEdges');
  svg.setAttribute('aria-label', label);
  const path = document.createElementNS(SVG, 'path');
  path.setAttribute('d', dark.join(''));
  svg.append(path);
  return svg;
}
