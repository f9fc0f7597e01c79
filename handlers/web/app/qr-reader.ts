import decodeQR from 'qr/decode.js';

/** Pixels of the longer side of the scanned picture. More would take time and find no more codes before a camera. */
const MAX_SIDE = 800;

/** Reads QR codes in browsers that cannot: the part of `BarcodeDetector` that the camera uses. */
export function createReader() {
  const canvas = document.createElement('canvas');
  const context = canvas.getContext('2d', { willReadFrequently: true });
  return {
    async detect(video: HTMLVideoElement): Promise<{ rawValue: string }[]> {
      const { videoWidth, videoHeight } = video;
      const scale = Math.min(1, MAX_SIDE / Math.max(videoWidth, videoHeight));
      canvas.width = Math.round(videoWidth * scale);
      canvas.height = Math.round(videoHeight * scale);
      if (!context || canvas.width === 0) return [];
      context.drawImage(video, 0, 0, canvas.width, canvas.height);
      try {
        return [{ rawValue: decodeQR(context.getImageData(0, 0, canvas.width, canvas.height)) }];
      } catch {
        // No code is visible.
        return [];
      }
    },
  };
}
