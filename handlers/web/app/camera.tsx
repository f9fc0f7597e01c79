import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { Button, Notice } from '../shared/components.tsx';
import { useT } from '../shared/i18n.ts';

/** Milliseconds between two scans of the picture. */
const LOOK_EVERY = 200;

/** Interface shared by the browser's own detector and the package's. */
interface Detector {
  detect(source: HTMLVideoElement): Promise<{ rawValue: string }[]>;
}
interface NativeDetector {
  new (options: { formats: ['qr_code'] }): Detector;
  getSupportedFormats(): Promise<string[]>;
}

/** The browser's detector of QR codes, else one that is loaded on demand. */
async function openDetector(): Promise<Detector> {
  const native = (globalThis as { BarcodeDetector?: NativeDetector }).BarcodeDetector;
  const formats = await native?.getSupportedFormats().catch((): string[] => []);
  if (native && formats?.includes('qr_code')) return new native({ formats: ['qr_code'] });
  return (await import('./qr-reader.ts')).createReader();
}

const PROBLEMS: Readonly<Record<string, string>> = {
  NotAllowedError: 'The camera is blocked: allow it for this page in the settings of the browser.',
  NotFoundError: 'This device has no camera: type the code instead.',
  NotReadableError: 'Another program is using the camera: close it and try again.',
};

export interface CameraProps {
  /** Called with the text of every visible code until it returns true. */
  onText(text: string): boolean;
  onClose(): void;
}

/** The picture of the camera, until a QR code in it was accepted. */
export function Camera({ onText, onClose }: CameraProps) {
  const t = useT();
  const video = useRef<HTMLVideoElement>(null);
  const problem = useSignal('');

  useEffect(() => {
    const ended = new AbortController();
    watch(video.current as HTMLVideoElement, onText, ended.signal).catch((error: Error) => {
      if (ended.signal.aborted) return;
      problem.value = PROBLEMS[error.name] ?? 'The camera cannot be used: type the code instead.';
    });
    return () => ended.abort();
  }, []);

  return (
    <div class="card">
      {problem.value !== '' ? (
        <Notice tone="bad">{t(problem.value)}</Notice>
      ) : (
        <video ref={video} class="camera" muted playsInline aria-label={t('Picture of the camera')} />
      )}
      <Button icon="close" onClick={onClose}>
        {t('Close the camera')}
      </Button>
    </div>
  );
}

/** Shows the camera and scans for codes until one is accepted or `signal` aborts. Always releases the camera. */
async function watch(video: HTMLVideoElement, onText: CameraProps['onText'], signal: AbortSignal): Promise<void> {
  const stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: 'environment' } });
  try {
    signal.throwIfAborted();
    video.srcObject = stream;
    await video.play();
    // The picture is shown while it is loaded, which may fail.
    const detector = await openDetector();
    for (;;) {
      await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY));
      signal.throwIfAborted();
      const found = video.readyState >= video.HAVE_CURRENT_DATA ? await detector.detect(video).catch(() => []) : [];
      if (found.some(({ rawValue }) => onText(rawValue))) return;
    }
  } finally {
    for (const track of stream.getTracks()) track.stop();
  }
}
