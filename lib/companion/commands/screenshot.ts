import { describeError } from '../../errors.ts';
import { withTimeout } from '../../kit/timeouts.ts';
import type { Device } from '../device.ts';
import { inTime } from '../gates/consent.ts';
import { type Call, CommandFailure, type Handler } from '../gates/gate.ts';
import type { Upload } from '../types.ts';
import { insist } from './personal.ts';

const ATTEMPTS = 2;
const UPLOAD_MS = 15_000;

const UPLOAD_ERRORS: Record<number, string> = {
  401: 'the relay does not accept this phone any more: pair it again',
  403: 'the relay does not accept this phone any more: pair it again',
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
    insist(inTime(call));
    return capture(call, device);
  });
  return { media: `MEDIA:svc-relay://${await deliver(call, upload, bytes)}` };
};

async function capture({ env }: Call, device: Device): Promise<Uint8Array> {
  let reason = 'nothing was captured in time';
  for (let attempt = 0; attempt < ATTEMPTS && !env.closed.aborted; attempt++) {
    try {
      const bytes = await withTimeout(
        { clock: env.clock, timeout: env.captureTimeoutMs },
        device.screenshot?.() ?? Promise.resolve(null),
        () => null,
      );
      if (bytes) return bytes;
    } catch (error) {
      reason = describeError(error);
    }
  }
  throw new CommandFailure(500, `screen capture failed: ${reason}`);
}

async function deliver({ env }: Call, upload: Upload, bytes: Uint8Array): Promise<string> {
  const file = { name: `svc-screenshot-${env.clock.now()}.png`, type: 'image/png', bytes };
  let answer: Awaited<ReturnType<Upload>> | null;
  try {
    answer = await withTimeout({ clock: env.clock, timeout: UPLOAD_MS }, upload(file), () => null);
  } catch (error) {
    throw new CommandFailure(500, `screenshot upload failed: ${describeError(error)}`);
  }
  if (answer && 'token' in answer) return answer.token;
  const reason = answer ? (UPLOAD_ERRORS[answer.status] ?? `the relay answered ${answer.status}`) : 'timed out';
  throw new CommandFailure(500, `screenshot upload failed: ${reason}`);
}
