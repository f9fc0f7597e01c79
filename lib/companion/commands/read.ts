import { describeError } from '../../errors.ts';
import { withTimeout } from '../../kit/timeouts.ts';
import type { device } from '../../operations/device.ts';
import type { Device } from '../device.ts';
import { checkDeadline } from '../gates/consent.ts';
import { type CommandCall, CommandFailure, type Handler, throwIfRefused } from '../gates/gate.ts';
import { hashScreen } from '../tree.ts';
import type { Upload } from '../types.ts';
import type { HandlerOf } from './args.ts';
import { currentScreen, matchingNodes, nodeById, nodeJson } from './nodes.ts';

export const screen: HandlerOf<typeof device.screen> = async (call, { include_bounds: includeBounds }) => {
  const { packageName, rootBounds, listed, truncated } = await currentScreen(call);
  const nodes = listed.map((node) => nodeJson(node, includeBounds));
  return { packageName, rootBounds, nodes, truncated, nodeCount: nodes.length };
};

export const screenHash: Handler = async (call) => {
  const current = await currentScreen(call);
  return { hash: await hashScreen(current), node_count: current.listed.length, truncated: current.truncated };
};

export const diffScreen: HandlerOf<typeof device.diffScreen> = async (call, { previous_hash: previous }) => {
  const current = await currentScreen(call);
  const hash = await hashScreen(current);
  const changed = hash !== previous.trim().toLowerCase();
  return { changed, hash, node_count: current.listed.length, truncated: current.truncated };
};

export const findNodes: HandlerOf<typeof device.findNodes> = async (call, { limit, clickable, ...args }) => {
  const filter = { text: args.text || undefined, className: args.class_name || undefined, clickable };
  const matches = matchingNodes(await currentScreen(call), filter)
    .slice(0, limit)
    .map((node) => nodeJson(node));
  return { matches, count: matches.length };
};

export const describeNode: HandlerOf<typeof device.describeNode> = async (call, { nodeId }) => {
  const { node, text, description } = nodeById(await currentScreen(call), nodeId);
  const { left, top, right, bottom } = node.bounds;
  return {
    nodeId,
    bounds: {
      ...node.bounds,
      centerX: Math.floor((left + right) / 2),
      centerY: Math.floor((top + bottom) / 2),
      width: right - left,
      height: bottom - top,
    },
    className: node.className,
    text,
    contentDescription: description,
    hintText: node.hintText,
    viewIdResourceName: node.viewId,
    childCount: node.children.length,
    clickable: node.clickable,
    longClickable: node.longClickable,
    focusable: node.focusable,
    focused: node.focused,
    editable: node.editable,
    scrollable: node.scrollable,
    checkable: node.checkable,
    checked: node.checkable ? node.checked : null,
    enabled: node.enabled,
    selected: node.selected,
    password: node.password,
  };
};

/** Unique launchable packages, each with the first label found. */
export const getApps: Handler = async ({ env }) => {
  const apps = new Map<string, { package: string; label: string }>();
  for (const { package: name, label } of await env.device.apps()) {
    if (!apps.has(name)) apps.set(name, { package: name, label });
  }
  return { apps: [...apps.values()], count: apps.size };
};

const CAPTURE_ATTEMPTS = 2;
const UPLOAD_TIMEOUT_MS = 15_000;

const UPLOAD_ERRORS: Record<number, string> = {
  401: 'the relay no longer accepts this phone: pair it again',
  403: 'the relay no longer accepts this phone: pair it again',
  404: 'this relay is too old to take screenshots',
  413: 'the screenshot is too large for the relay',
};

/** A PNG of the screen, uploaded to the relay's media registry (contract 03 §7). */
export const screenshot: Handler = async (call) => {
  const { device, upload } = call.env;
  if (!device.screenshot || !upload || !device.info().screenCaptureGranted) {
    throw new CommandFailure(503, 'screen capture is not set up on the phone', {
      code: 'service_unavailable',
      error_code: 'service_unavailable',
      required_action: 'set_up_screen_capture',
    });
  }
  const bytes = await call.env.serially(() => {
    throwIfRefused(checkDeadline(call));
    return capture(call, device);
  });
  return { media: `MEDIA:svc-relay://${await uploadScreenshot(call, upload, bytes)}` };
};

async function capture({ env }: CommandCall, device: Device): Promise<Uint8Array> {
  const timing = { clock: env.clock, timeout: env.captureTimeoutMs };
  let reason = 'timed out';
  for (let attempt = 0; attempt < CAPTURE_ATTEMPTS && !env.closed.aborted; attempt++) {
    try {
      const bytes = await withTimeout(timing, device.screenshot?.() ?? Promise.resolve(null), () => null);
      if (bytes) return bytes;
    } catch (error) {
      reason = describeError(error);
    }
  }
  throw new CommandFailure(500, `screen capture failed: ${reason}`);
}

/** The media token of the uploaded screenshot. */
async function uploadScreenshot({ env }: CommandCall, upload: Upload, bytes: Uint8Array): Promise<string> {
  const file = { name: `svc-screenshot-${env.clock.now()}.png`, type: 'image/png', bytes };
  let answer: Awaited<ReturnType<Upload>> | null;
  try {
    answer = await withTimeout({ clock: env.clock, timeout: UPLOAD_TIMEOUT_MS }, upload(file), () => null);
  } catch (error) {
    throw new CommandFailure(500, `screenshot upload failed: ${describeError(error)}`);
  }
  if (answer && 'token' in answer) return answer.token;
  const reason = answer ? (UPLOAD_ERRORS[answer.status] ?? `the relay answered ${answer.status}`) : 'timed out';
  throw new CommandFailure(500, `screenshot upload failed: ${reason}`);
}
