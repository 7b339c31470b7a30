// The search runs in a Worker, but browsers do not start a Worker for a page from a folder (file:).
// For such a page, a hidden frame does the same work, with the functions of a Worker that the search uses.
if (location.protocol === "file:") {
  const inside = `
    self.postMessage = (data) => parent.postMessage(data, "*")
    self.importScripts = async (...urls) => {
      for (const url of urls)
        await new Promise((done) => document.body.append(Object.assign(document.createElement("script"), { src: url, onload: done })))
    }`
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = Object.assign(document.createElement("iframe"), { hidden: true })
      document.body.append(frame)
      this.postMessage = frame.contentWindow.postMessage.bind(frame.contentWindow)
      this.terminate = () => frame.remove()
      window.addEventListener("message", (event) => {
        if (event.source === frame.contentWindow) this.dispatchEvent(new MessageEvent("message", { data: event.data }))
      })
      frame.contentDocument.open()
      frame.contentDocument.write(`<body><script>${inside}</script><script src="${url}"></script>`)
      frame.contentDocument.close()
    }
  }
}
